//go:build !linux

package main

// hideMemory does nothing: only Linux lets a process hide its memory.
func hideMemory() {}

// showProcess does nothing.
func showProcess() {}
