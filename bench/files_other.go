//go:build !linux

package main

// raiseFileLimit does nothing, and returns a safe limit of open files, at most n.
func raiseFileLimit(n int) int { return min(n, 256) }
