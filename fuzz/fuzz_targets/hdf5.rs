#![no_main]
shardify_fuzz::target!(hdf5);
