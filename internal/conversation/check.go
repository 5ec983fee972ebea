package conversation

import (
	"errors"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A scan reads pieces of a text for the ids of the responses in it.
type scan interface {
	Scan(piece []byte) error
	IDs() [][]byte
}

// A Check makes sure that a text which is too large to be held answers no request
// that it does not belong to. A client that is given only pieces which have passed
// never has the end of another answer. Which calls the gate holds when the text
// begins does not matter, for the upstream chooses when it ends.
type Check struct {
	request *Request
	scan    scan
	checked int
}

// CheckText returns the check of a JSON text.
func (r *Request) CheckText() *Check { return &Check{request: r, scan: new(jsonrpc.AnswerScanner)} }

// CheckEvent returns the check of an event.
func (r *Request) CheckEvent() *Check { return &Check{request: r, scan: new(jsonrpc.EventScanner)} }

// Pass returns an error if the client must not be given a piece of the text.
func (c *Check) Pass(piece []byte) error {
	if err := c.scan.Scan(piece); err != nil {
		return errors.Join(upstream.ErrUnchecked, err)
	}
	ids := c.scan.IDs()
	for _, id := range ids[c.checked:] {
		if !c.request.Expects(&jsonrpc.Message{Kind: jsonrpc.Response, ID: jsonrpc.Value{Bytes: id}}) {
			c.request.Dropped()
			return upstream.ErrUnchecked
		}
	}
	if !c.request.unasked { // elsewhere it depends on what the gate holds by then
		c.checked = len(ids)
	}
	return nil
}
