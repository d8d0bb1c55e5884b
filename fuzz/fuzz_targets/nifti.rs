#![no_main]
shardify_fuzz::target!(nifti);
