package main

var words = map[string]string{}
