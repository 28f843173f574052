"""llama.cpp's library, loaded models, and how they are loaded."""
