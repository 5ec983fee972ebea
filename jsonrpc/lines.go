package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// A LineReader reads newline-delimited JSON, as on stdio.
type LineReader struct {
	r     *bufio.Reader
	max   int
	large func(piece []byte)
	err   error
}

// lineBuffer is the size of the read buffer.
const lineBuffer = 32 << 10

// NewLineReader returns a reader of the lines of r. It skips lines of more than maxSize bytes
// and reports them as [ErrTooLarge].
func NewLineReader(r io.Reader, maxSize int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, lineBuffer), max: maxSize, large: func([]byte) {}}
}

// OnLarge sets a function that gets each oversized line in pieces, before Next reports that
// line. A piece is valid during the call.
func (r *LineReader) OnLarge(f func(piece []byte)) { r.large = f }

// Next returns the next nonblank line in new memory, without its line break. The last line
// needs no line break. At the end it returns [io.EOF]. After any error except ErrTooLarge, Next
// keeps returning it.
func (r *LineReader) Next() ([]byte, error) {
	for r.err == nil {
		line, err := r.readLine()
		switch {
		case errors.Is(err, ErrTooLarge):
			return nil, err
		case err != nil:
			r.err = err
		case len(bytes.Trim(line, " \t\r")) > 0:
			return bytes.TrimRight(line, "\r"), nil
		}
	}
	return nil, r.err
}

func (r *LineReader) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := r.r.ReadSlice('\n')
		part, ended := bytes.CutSuffix(part, []byte("\n"))
		if len(line)+len(part) > r.max {
			r.large(line)
			r.large(part)
			return nil, r.skip(err)
		}
		line = append(line, part...)
		switch {
		case ended, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// skip reads the rest of an oversized line. err is the result of the last read.
func (r *LineReader) skip(err error) error {
	for errors.Is(err, bufio.ErrBufferFull) {
		var part []byte
		part, err = r.r.ReadSlice('\n')
		r.large(part)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return ErrTooLarge
}

// AppendLine appends message as one line. Line breaks in JSON are white space between tokens,
// so they become spaces.
func AppendLine(dst, message []byte) []byte {
	start := len(dst)
	dst = append(dst, message...)
	for i := start + lineEnd(message); i < len(dst); i += lineEnd(dst[i:]) {
		dst[i] = ' '
	}
	return append(dst, '\n')
}
