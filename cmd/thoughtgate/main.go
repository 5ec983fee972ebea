// Command thoughtgate is a gate between MCP clients and MCP servers. This package is the
// command line: it handles flags, the environment, signals and output. Package app runs the
// gate.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // cedar.timezone must work in images without time zone files
)

func main() {
	hideMemory() // before secrets are read
	if err := newRoot().ExecuteContext(untilSignal()); err != nil {
		os.Exit(printError(os.Stderr, err))
	}
}

// untilSignal returns a context that ends with the first stop signal. The second signal
// ends the process at once.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() { // runs until the process ends
		<-signals
		cancel()
		code := 128 // plus the signal's number, like shells
		if s, ok := (<-signals).(syscall.Signal); ok {
			code += int(s)
		}
		os.Exit(code)
	}()
	return ctx
}
