//go:build !linux

package process

import "net"

// Behind returns [ErrUnknown].
func Behind(net.Conn) (Peer, error) { return Peer{}, ErrUnknown }

// OneBehind returns [ErrUnknown].
func OneBehind(net.Conn, ID) (Peer, error) { return Peer{}, ErrUnknown }

// Read returns [ErrUnknown].
func Read(int) (Process, error) { return Process{}, ErrUnknown }

// Ancestors returns nothing.
func Ancestors(ID) []ID { return nil }

// Exists reports true: the process may still run.
func Exists(ID) bool { return true }

// Self returns [ErrUnknown].
func Self() (ID, error) { return ID{}, ErrUnknown }

// Starter returns [ErrUnknown].
func Starter([]string) (ID, error) { return ID{}, ErrUnknown }

// Machine returns [ErrUnknown].
func Machine() (string, error) { return "", ErrUnknown }
