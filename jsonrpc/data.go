package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// A DataReader reads the data of Server-Sent Events, one event after the other.
// It holds no event, so they may be of any size. [EventReader] is for those who
// need an event as a whole, or its other fields.
type DataReader struct {
	r       *bufio.Reader
	begun   bool // the first line has ended
	afterCR bool // the last line ended in CR: a LF that follows belongs to it
	event   bool // the event has had a line of data, and has not ended
	value   bool // within the value of such a line
	join    bool // a line feed comes before it
}

// NewDataReader returns a reader of the data of the events of r.
func NewDataReader(r io.Reader) *DataReader {
	return &DataReader{r: bufio.NewReaderSize(r, 16<<10)}
}

// Next goes to the next event that has data, and skips the rest of the current
// one. It returns [io.EOF] if there is none.
func (d *DataReader) Next() error {
	if _, err := io.Copy(io.Discard, d); err != nil {
		return err
	}
	for !d.event {
		if err := d.line(); err != nil {
			return err
		}
	}
	d.join = false
	return nil
}

// Read reads the data of the event. Its lines are joined by line feeds. It
// returns [io.EOF] at the end of the event, and [io.ErrUnexpectedEOF] if the
// stream ends before that.
func (d *DataReader) Read(p []byte) (int, error) {
	for d.event && len(p) > 0 {
		if d.join {
			d.join = false
			p[0] = '\n'
			return 1, nil
		}
		var n int
		var err error
		if d.value {
			n, err = d.rest(p)
		} else {
			err = d.line()
		}
		switch {
		case errors.Is(err, io.EOF):
			return n, io.ErrUnexpectedEOF
		case n > 0, err != nil:
			return n, err
		}
	}
	if len(p) == 0 {
		return 0, nil
	}
	return 0, io.EOF
}

// line reads a line, one of data as far as its value and any other to its end.
func (d *DataReader) line() error {
	name, colon, err := d.field()
	switch {
	case err != nil:
		return err
	case name == "data":
		d.event, d.value, d.join = true, colon, true
		if next, err := d.r.Peek(1); colon && err == nil && next[0] == ' ' {
			_, _ = d.r.Discard(1)
		}
	case colon:
		var skipped [512]byte
		for d.value = true; d.value && err == nil; {
			_, err = d.rest(skipped[:])
		}
	case name == "":
		d.event = false
	}
	return err
}

// field reads a line as far as the colon, or to its end if it has none, and
// returns the name of the field. A long name is cut, as none that matters is.
func (d *DataReader) field() (name string, colon bool, err error) {
	var head []byte
	for {
		c, err := d.r.ReadByte()
		if err != nil {
			return "", false, err
		}
		half := d.afterCR && c == '\n'
		d.afterCR = false
		switch {
		case half:
		case c == ':', c == '\n', c == '\r':
			if !d.begun {
				head = bytes.TrimPrefix(head, []byte(byteOrderMark))
			}
			d.begun, d.afterCR = true, c == '\r'
			return string(head), c == ':', nil
		case len(head) < len(byteOrderMark+"data")+1:
			head = append(head, c)
		}
	}
}

// rest reads what there is of the value of a line. It moves past the end of the
// line when it gets there.
func (d *DataReader) rest(p []byte) (int, error) {
	if _, err := d.r.Peek(1); err != nil {
		return 0, err
	}
	there, _ := d.r.Peek(d.r.Buffered())
	n := lineEnd(there[:min(len(there), len(p))])
	copy(p, there[:n])
	if n < len(there) && (there[n] == '\n' || there[n] == '\r') {
		d.afterCR, d.value = there[n] == '\r', false
		_, _ = d.r.Discard(1)
	}
	_, _ = d.r.Discard(n)
	return n, nil
}

// A DataWriter writes an event whose data is too large to be held. It must be
// closed, or the event does not count.
type DataWriter struct {
	w       io.Writer
	begun   bool
	afterCR bool // the last byte was a CR: a LF that follows belongs to it
}

// NewDataWriter returns a writer of the data of one event, of the kind message,
// to w.
func NewDataWriter(w io.Writer) *DataWriter { return &DataWriter{w: w} }

// Write writes a part of the data.
func (d *DataWriter) Write(p []byte) (int, error) {
	if !d.begun {
		d.begun = true
		if _, err := io.WriteString(d.w, "event: message\ndata: "); err != nil {
			return 0, err
		}
	}
	done := 0
	for done < len(p) {
		if d.afterCR && p[done] == '\n' {
			done++
		}
		d.afterCR = false
		n := lineEnd(p[done:])
		if _, err := d.w.Write(p[done : done+n]); err != nil {
			return done, err
		}
		if done += n; done == len(p) {
			break
		}
		d.afterCR = p[done] == '\r'
		if _, err := io.WriteString(d.w, "\ndata: "); err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}

// Close ends the event.
func (d *DataWriter) Close() error {
	_, err := io.WriteString(d.w, "\n\n")
	return err
}
