"""Text encoders: from a text to components, by a pretrained language model."""
