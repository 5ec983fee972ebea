//go:build !linux

package main

import "os/exec"

func group(*exec.Cmd) {}

// killGroup ends a program. Its children are expected to end by themselves.
func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
