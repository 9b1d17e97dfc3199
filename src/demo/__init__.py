"""A real training to watch: a Keras convnet on JPEG crops of two photographs, with a fast and a slow pipeline."""
