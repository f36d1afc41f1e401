"""The processes that train one network: started together, exchanging batches, ended together."""
