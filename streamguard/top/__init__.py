"""What runs on this machine, for `streamguard top`: `published` the files, `publisher` who writes them."""
