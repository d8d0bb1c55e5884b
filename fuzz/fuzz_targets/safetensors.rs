#![no_main]
shardify_fuzz::target!(safetensors);
