#![no_main]
shardify_fuzz::target!(foreign_shards);
