"""`tradewind env check`: does a customer's server keep the push protocol, in whatever language?"""
