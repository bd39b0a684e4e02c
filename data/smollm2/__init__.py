"""SmolLM2-135M-Instruct as a Hugging Face folder: see prepare.py."""
