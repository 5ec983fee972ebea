//go:build !linux

package main

// systemPrograms are the programs of tests that only this system has.
var systemPrograms map[string]func()
