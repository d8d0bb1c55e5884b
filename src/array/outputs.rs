//! Tensors in formats that have none.
