package conversation

import (
	"errors"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
)

// A scan reads pieces of a text for the ids of the responses in it.
type scan interface {
	Scan(piece []byte) error
	IDs() [][]byte
	Closed() bool
}

// A Check makes sure that a text which is too large to be held answers no request
// that it does not belong to, and reports on no task, which may be one of the
// gate's. A client that is given only pieces which have passed
// never has the end of another answer. Which calls the gate holds when the text
// begins does not matter, for the upstream chooses when it ends.
type Check struct {
	request *Request
	scan    scan
	checked int
}

// CheckText returns the check of a JSON text.
func (r *Request) CheckText() *Check {
	return &Check{request: r, scan: &jsonrpc.AnswerScanner{Method: refuseReports}}
}

// CheckEvent returns the check of an event.
func (r *Request) CheckEvent() *Check {
	return &Check{request: r, scan: &jsonrpc.EventScanner{AnswerScanner: jsonrpc.AnswerScanner{Method: refuseReports}}}
}

var errReport = errors.New("a notification about a task is too large to be checked")

// refuseReports refuses the methods of notifications about tasks.
func refuseReports(method string) error {
	if method == mcptask.MethodStatus2025 || method == mcptask.MethodStatus2026 {
		return errReport
	}
	return nil
}

// PassLast is Pass for the last piece of the text. Of a text that does not end properly,
// some clients read a part only.
func (c *Check) PassLast(piece []byte) error {
	if err := c.Pass(piece); err != nil {
		return err
	}
	if !c.scan.Closed() {
		return upstream.ErrUnchecked
	}
	return nil
}

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
