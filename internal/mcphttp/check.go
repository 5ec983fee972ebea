package mcphttp

import (
	"errors"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A scan reads pieces of a text for the ids of the responses in it.
type scan interface {
	Scan(piece []byte) error
	IDs() [][]byte
}

// An answerCheck makes sure that a text which is too large to be held answers no
// request that it does not belong to. Whoever is given only what it has passed
// never has the end of another answer. Which calls the gate holds when the text
// begins does not matter, for the upstream chooses when it ends.
type answerCheck struct {
	x       *exchange
	scan    scan
	checked int
}

// pass returns an error if the client must not be given a piece of the text.
func (c *answerCheck) pass(piece []byte) error {
	if err := c.scan.Scan(piece); err != nil {
		return errors.Join(upstream.ErrUnchecked, err)
	}
	ids := c.scan.IDs()
	for _, id := range ids[c.checked:] {
		if !c.x.expects(&jsonrpc.Message{Kind: jsonrpc.Response, ID: jsonrpc.Value{Bytes: id}}) {
			c.x.dropped()
			return upstream.ErrUnchecked
		}
	}
	if c.x.r.Method != http.MethodGet { // elsewhere it depends on what the gate holds by then
		c.checked = len(ids)
	}
	return nil
}

// deceives reports whether some client may take a text that the gate cannot
// parse for an answer to another request.
func (x *exchange) deceives(text []byte) bool {
	check := answerCheck{x: x, scan: new(jsonrpc.AnswerScanner)}
	return check.pass(text) != nil
}

// A checkedBody is a body of which each piece is checked before it is given on.
type checkedBody struct {
	io.Reader

	check *answerCheck
}

// Read implements [io.Reader].
func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if refused := b.check.pass(p[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

// checked returns the rest of a body that begins with the given bytes, checked
// while it is read, or the problem with those bytes.
func (x *exchange) checked(begin []byte, rest io.Reader) (io.Reader, *wire.Problem) {
	check := &answerCheck{x: x, scan: new(jsonrpc.AnswerScanner)}
	if err := check.pass(begin); err != nil {
		return nil, &wire.Problem{Type: wire.UpstreamUnasked, Cause: err}
	}
	return &checkedBody{Reader: rest, check: check}, nil
}

// passPart sends part of an event that is too large to be held.
func (s *eventRelay) passPart(part []byte) error {
	if s.strict || s.change != nil && s.x.r.Method == http.MethodGet && !s.x.resumes() {
		return upstream.ErrUnchecked
	}
	if s.change != nil {
		if s.check == nil {
			s.check = &answerCheck{x: s.x, scan: new(jsonrpc.EventScanner)}
		}
		if err := s.check.pass(part); err != nil {
			return err
		}
	}
	s.huge = true
	return s.sendPart(part)
}

// changed returns what the client is to see of an event, which may be the rest
// of one that was too large to be held.
func (s *eventRelay) changed(raw []byte) ([]byte, error) {
	switch {
	case s.change == nil:
		return raw, nil
	case s.check != nil:
		err := s.check.pass(raw)
		s.check = nil
		return raw, err
	default:
		return s.change(raw)
	}
}
