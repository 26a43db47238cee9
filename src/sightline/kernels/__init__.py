"""What a GPU does in one go. Every file but `device` needs torch, and is only imported where `has_gpu` says so."""
