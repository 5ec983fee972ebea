package testenv

import (
	"errors"
	"os"
	"os/exec"
)

// A process is a server that was started.
type process struct {
	*os.Process

	ended chan struct{} // closed when it, and all that it has started, is no more
}

func launch(c *exec.Cmd) (*process, error) {
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &process{c.Process, make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = c.Wait() // servers end on the signal
	}()
	return p, nil
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// end sends a signal that ends the process, and waits for that.
func (p *process) end(s os.Signal) error {
	err := p.Signal(s)
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
