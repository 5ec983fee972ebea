package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// paramHeader is the prefix of headers that repeat arguments. paramMark is the schema member
// that names the header.
const (
	paramHeader = "Mcp-Param-"
	paramMark   = "x-mcp-header"
)

// A Mirror is a tool argument that a header repeats.
type Mirror struct {
	Header string   // canonical name of the header
	Path   []string // member names that lead to the argument
}

// Mirrors returns the mirrored arguments of a tool definition. An error means that the
// definition is invalid; then the tool cannot be called and must not be listed.
func Mirrors(tool jsonrpc.Value) ([]Mirror, error) {
	if !bytes.Contains(tool.Bytes, []byte(paramMark)) {
		return nil, nil
	}
	var found mirrorFinder
	found.read(tool.Member("inputSchema"), schemaPosition{chained: true})
	if found.err != nil {
		return nil, found.err
	}
	return found.all, nil
}

type mirrorFinder struct {
	all []Mirror
	err error // the first invalid mark
}

// A schemaPosition is a position in a schema.
type schemaPosition struct {
	path    []string
	chained bool // only properties lead here from the root
}

// read finds the marks in a schema and its subschemas.
func (f *mirrorFinder) read(schema jsonrpc.Value, at schemaPosition) {
	for name, value := range schema.Members() {
		switch name {
		case paramMark:
			if err := f.note(schema, value, at); f.err == nil {
				f.err = err
			}
		case "properties":
			for property, inner := range value.Members() {
				f.read(inner, schemaPosition{append(slices.Clip(at.path), property), at.chained})
			}
		case "patternProperties", "$defs", "definitions", "dependentSchemas":
			for _, inner := range value.Members() {
				f.read(inner, schemaPosition{path: at.path})
			}
		case "default", "const", "enum", "examples": // values, not schemas
		default:
			f.readInside(value, at.path)
		}
	}
}

// readInside reads a value that may be a schema or an array of schemas.
func (f *mirrorFinder) readInside(value jsonrpc.Value, path []string) {
	f.read(value, schemaPosition{path: path})
	for element := range value.Elements() {
		f.readInside(element, path)
	}
}

// note records the mark of one argument.
func (f *mirrorFinder) note(schema, mark jsonrpc.Value, at schemaPosition) error {
	name, isText := mark.Text()
	kind, _ := schema.Member("type").Text()
	header := http.CanonicalHeaderKey(paramHeader + name)
	switch {
	case !isText || !isToken(name):
		return errors.New(paramMark + " is not the name of a header")
	case !at.chained || len(at.path) == 0:
		return fmt.Errorf("%s %q is not at a property of the arguments", paramMark, name)
	case kind != "string" && kind != "integer" && kind != "boolean":
		return fmt.Errorf("%s %q is at an argument that is not a string, integer or boolean", paramMark, name)
	case slices.ContainsFunc(f.all, func(m Mirror) bool { return strings.EqualFold(m.Header, header) }):
		return fmt.Errorf("%s %q is given twice", paramMark, name)
	}
	f.all = append(f.all, Mirror{Header: header, Path: at.path})
	return nil
}

// isToken reports whether text can be part of a header name.
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		alphanumeric := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return text != "" && len(text) <= maxToken
}

// maxToken is the maximum length of a header name.
const maxToken = 200

// argument returns the mirrored argument. It is absent if it is null, which no header repeats.
func (m Mirror) argument(arguments jsonrpc.Value) jsonrpc.Value {
	for _, name := range m.Path {
		arguments = arguments.Member(name)
	}
	if arguments.IsNull() {
		return jsonrpc.Value{}
	}
	return arguments
}

// MirrorArguments sets the headers that the tool definition demands, and removes other headers
// with the prefix. The error is that of [Mirrors].
func MirrorArguments(h http.Header, tool, arguments jsonrpc.Value) error {
	for name := range h {
		if strings.HasPrefix(name, paramHeader) {
			delete(h, name)
		}
	}
	demanded, err := Mirrors(tool)
	if err != nil {
		return err
	}
	for _, m := range demanded {
		if argument := m.argument(arguments); argument.Present() {
			h.Set(m.Header, headerText(argument))
		}
	}
	return nil
}

// HasMirrors reports whether a header claims to repeat an argument.
func HasMirrors(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, paramHeader) {
			return true
		}
	}
	return false
}

// CheckMirrors returns a problem if a header differs from its argument. Missing headers are
// left to the upstream. Headers that the definition does not name have no meaning.
func CheckMirrors(h http.Header, tool, arguments jsonrpc.Value) *Problem {
	demanded, _ := Mirrors(tool) // an invalid definition gives headers no meaning
	for _, m := range demanded {
		given := h[m.Header]
		if len(given) == 0 {
			continue
		}
		argument := m.argument(arguments)
		text, ok := decodeHeader(given[0])
		if len(given) > 1 || !ok || !argument.Present() || !repeats(text, argument) {
			return mismatch(m.Header + " and the argument that it repeats differ")
		}
	}
	return nil
}

// repeats reports whether the header text equals the argument.
func repeats(text string, argument jsonrpc.Value) bool {
	if original, isText := argument.Text(); isText {
		return text == original
	}
	if text == string(argument.Bytes) {
		return true
	}
	one, err := strconv.ParseFloat(text, 64)
	other, err2 := strconv.ParseFloat(string(argument.Bytes), 64)
	const exact = 1 << 53 // larger integers are not exact as floats
	return err == nil && err2 == nil && one == other && -exact < one && one < exact
}

func headerText(v jsonrpc.Value) string {
	if text, ok := v.Text(); ok {
		return EncodeHeader(text)
	}
	return string(v.Bytes)
}
