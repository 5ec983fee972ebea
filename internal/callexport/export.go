// Package callexport sends the record of calls to a receiver of logs, such as a SIEM: as OTLP over
// HTTP, or as syslog over TCP or TLS. Every entry is sent until the receiver accepts it, so one may
// arrive twice:
//
//	to, err := callexport.Open(callexport.Target{URL: "tls://siem.example.com:6514"})
//	x := callexport.Export{Find: find, To: to, Accepted: saveCursor}
//	err = x.Run(ctx, callrecord.Filter{After: cursor})
package callexport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/otlp"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

const (
	followPause  = 2 * time.Second // before the next look for new entries
	firstBackoff = time.Second     // doubles with every attempt
	lastBackoff  = time.Minute
	maxAttempts  = 5           // without Follow
	maxWait      = time.Minute // that a receiver may ask for, without Follow
	maxBatch     = 1 << 20     // bytes, about
	entrySize    = 1 << 10     // estimate of the bytes of an entry without arguments
)

// A Receiver takes entries.
type Receiver interface {
	// Send returns nil if the receiver has accepted all entries. It returns a *[TemporaryError] if it
	// may accept them later.
	Send(ctx context.Context, entries []callrecord.Entry) error
}

// A TemporaryError is an error after which the same entries can be sent again.
type TemporaryError struct {
	Err  error
	Wait time.Duration // that the receiver asks for; negative if it does not
}

func (e *TemporaryError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *TemporaryError) Unwrap() error { return e.Err }

// Lines is a [Receiver] that writes entries as lines of JSON.
type Lines struct{ io.Writer }

// Send implements [Receiver].
func (l Lines) Send(_ context.Context, entries []callrecord.Entry) error {
	w := bufio.NewWriter(l.Writer)
	for i := range entries {
		if err := entries[i].Write(w); err != nil {
			return err
		}
	}
	return w.Flush()
}

// An Export sends entries to a receiver.
type Export struct {
	Find     callrecord.Finder
	To       Receiver
	Follow   bool                      // wait for new entries, and for a receiver that is not available
	Accepted func(cursor string) error // is called when the receiver has accepted what is before cursor
	Warn     func(error)               // is called for failures after which the export goes on

	rejected uint64
}

// Run sends the entries that f selects. It returns an error if the receiver did not take them all.
func (x *Export) Run(ctx context.Context, f callrecord.Filter) error {
	for {
		for page, err := range callrecord.Pages(ctx, x.Find, f) {
			if err == nil {
				err = x.sendPage(ctx, page)
			}
			if err != nil {
				return err
			}
			f.After = page.Next
		}
		if !x.Follow || !pause.For(ctx, followPause) {
			break
		}
	}
	if x.rejected > 0 {
		return fmt.Errorf("the receiver rejected %d entries, which are not sent again", x.rejected)
	}
	return nil
}

func (x *Export) sendPage(ctx context.Context, page callrecord.Page) error {
	from, size := 0, 0
	for i := range page.Entries {
		if size += entrySize + len(page.Entries[i].Arguments); size < maxBatch && i < len(page.Entries)-1 {
			continue
		}
		if err := x.deliver(ctx, page.Entries[from:i+1]); err != nil {
			return err
		}
		from, size = i+1, 0
	}
	return x.Accepted(page.Next)
}

// deliver sends a batch until the receiver accepts it, refuses it for good, or the number of
// attempts is exhausted.
func (x *Export) deliver(ctx context.Context, batch []callrecord.Entry) error {
	backoff := firstBackoff
	for attempt := 1; ; attempt++ {
		err := x.To.Send(ctx, batch)
		if rejected, ok := errors.AsType[*otlp.RejectedError](err); ok {
			x.rejected += rejected.Count
			x.Warn(err)
			return nil
		}
		failure, ok := errors.AsType[*TemporaryError](err)
		if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); !ok || untrusted {
			return err
		}
		wait := failure.Wait
		if wait < 0 {
			wait = backoff/2 + rand.N(backoff/2) // exports must not retry at the same moment
		}
		if !x.Follow && (attempt == maxAttempts || wait > maxWait) {
			return err
		}
		x.Warn(err)
		if !pause.For(ctx, wait) {
			return ctx.Err()
		}
		backoff = min(2*backoff, lastBackoff)
	}
}
