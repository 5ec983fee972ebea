package sqlitestore

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// signalSuffix is the suffix of the signal file, which is written after every commit. Earlier
// versions use the same name.
const signalSuffix = "-bell"

const (
	pollInterval = time.Second           // finds changes of a process that was killed between its commit and the signal
	pollFallback = 50 * time.Millisecond // if the signal file cannot be watched
)

// A changeSignal notifies the processes that share a database file of commits. A process
// sends it by writing to a file that the others watch. The signal does not name the change.
type changeSignal struct {
	file    *os.File
	watcher *fsnotify.Watcher // nil if files cannot be watched
	stop    chan struct{}
	running sync.WaitGroup
}

// startSignal makes w send the signal after each change, and check for changes of other
// processes when the signal arrives.
func startSignal(name string, w *writer) (*changeSignal, error) {
	if err := makePrivate(name); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	b := &changeSignal{file: file, stop: make(chan struct{})}
	every := pollInterval
	if b.watcher, err = watchFile(name); err != nil {
		every = pollFallback
	}
	w.signal = b.send
	b.running.Go(func() { b.listen(w.scheduleCheck, every) })
	return b, nil
}

// watchFile watches a file. It fails if the user already watches too many.
func watchFile(name string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watcher.Add(name); err != nil {
		return nil, errors.Join(err, watcher.Close())
	}
	return watcher, nil
}

// send sends the signal. Errors are ignored, because all processes poll too.
func (b *changeSignal) send() { _, _ = b.file.WriteAt([]byte{1}, 0) }

// listen calls look when the signal arrives and at an interval, until close.
func (b *changeSignal) listen(look func(), every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var rings chan fsnotify.Event
	var failures chan error
	if b.watcher != nil {
		rings, failures = b.watcher.Events, b.watcher.Errors
	}
	for {
		select {
		case <-b.stop:
			return
		case <-tick.C:
		case <-rings:
		case <-failures: // some signals were lost
		}
		look()
	}
}

func (b *changeSignal) close() error {
	close(b.stop)
	b.running.Wait()
	var err error
	if b.watcher != nil {
		err = b.watcher.Close()
	}
	return errors.Join(err, b.file.Close())
}
