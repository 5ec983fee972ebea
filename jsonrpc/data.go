package jsonrpc

import (
	"bufio"
	"io"
)

// A DataReader reads the data of Server-Sent Events of any size without holding an event in
// memory. [EventReader] returns whole events with all fields.
type DataReader struct {
	source  eventSource
	inEvent bool // a data line was read and the event has not ended
}

// NewDataReader returns a reader of the event data in r.
func NewDataReader(r io.Reader) *DataReader {
	return &DataReader{source: eventSource{r: bufio.NewReaderSize(r, 16<<10)}}
}

// Next advances to the next event with data and skips the rest of the current one. It returns
// [io.EOF] at the end, and [io.ErrUnexpectedEOF] if the stream ends inside an event.
func (d *DataReader) Next() error {
	if _, err := io.Copy(io.Discard, d); err != nil {
		return err
	}
	for !d.inEvent {
		_, complete, err := d.source.next(1, nil)
		if err != nil {
			return err
		}
		d.inEvent = !complete && d.source.framer.data > 0
	}
	return nil
}

// Read reads data of the current event, with lines joined by line feeds. It returns [io.EOF] at
// the end of the event, and [io.ErrUnexpectedEOF] if the stream ends earlier.
func (d *DataReader) Read(p []byte) (read int, err error) {
	for d.inEvent && read == 0 && len(p) > 0 {
		// The data in a text is at most as long as the text.
		_, complete, err := d.source.next(len(p), func(part []byte) { read += copy(p[read:], part) })
		if err != nil {
			return 0, err
		}
		d.inEvent = !complete
	}
	if read == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return read, nil
}

// A DataWriter writes one event whose data is too large for memory. Close completes the event.
type DataWriter struct {
	w       io.Writer
	begun   bool
	afterCR bool // the last byte was CR; a following LF belongs to it
}

// NewDataWriter returns a writer for the data of one message event.
func NewDataWriter(w io.Writer) *DataWriter { return &DataWriter{w: w} }

// Write implements [io.Writer].
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

// Close completes the event.
func (d *DataWriter) Close() error {
	_, err := io.WriteString(d.w, "\n\n")
	return err
}
