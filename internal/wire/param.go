package wire

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

// paramHeader is the prefix of headers that repeat arguments of a tool, and
// paramMark the member of a schema that says which.
const (
	paramHeader = "Mcp-Param-"
	paramMark   = "x-mcp-header"
)

// A Mirror is an argument of a tool that a header repeats.
type Mirror struct {
	Header string   // the name of the header, in canonical form
	Path   []string // the names that lead to the argument, the outermost first
}

// Mirrors returns the arguments that headers repeat, as the definition of the
// tool demands. The error says why the definition cannot be followed; then
// nobody can call the tool, and clients must not be shown it.
func Mirrors(tool jsonrpc.Value) ([]Mirror, error) {
	if !bytes.Contains(tool.Bytes, []byte(paramMark)) {
		return nil, nil
	}
	var found mirrors
	if err := found.read(tool.Member("inputSchema"), place{chained: true}); err != nil {
		return nil, err
	}
	return found, nil
}

type mirrors []Mirror

// A place is where in a schema something stands.
type place struct {
	path    []string
	chained bool // nothing but properties leads here from the root
}

// read notes the marks in a schema and in the schemas within it.
func (f *mirrors) read(schema jsonrpc.Value, at place) error {
	for name, value := range schema.Members() {
		var err error
		switch name {
		case paramMark:
			err = f.note(schema, value, at)
		case "properties":
			err = f.readEach(value, func(property string) place {
				return place{append(slices.Clip(at.path), property), at.chained}
			})
		case "patternProperties", "$defs", "definitions", "dependentSchemas":
			err = f.readEach(value, func(string) place { return place{path: at.path} })
		case "default", "const", "enum", "examples": // values, not schemas
		default:
			err = f.readInside(value, at.path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readEach reads the schemas that are the members of an object.
func (f *mirrors) readEach(object jsonrpc.Value, at func(name string) place) error {
	for name, schema := range object.Members() {
		if err := f.read(schema, at(name)); err != nil {
			return err
		}
	}
	return nil
}

// readInside reads what may be a schema, or an array of schemas.
func (f *mirrors) readInside(value jsonrpc.Value, path []string) error {
	if value.IsObject() {
		return f.read(value, place{path: path})
	}
	if !value.IsArray() {
		return nil
	}
	for element := range value.Elements() {
		if err := f.readInside(element, path); err != nil {
			return err
		}
	}
	return nil
}

// note takes note of a mark in the schema of one argument.
func (f *mirrors) note(schema, mark jsonrpc.Value, at place) error {
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
	case slices.ContainsFunc(*f, func(m Mirror) bool { return strings.EqualFold(m.Header, header) }):
		return fmt.Errorf("%s %q is given twice", paramMark, name)
	}
	*f = append(*f, Mirror{Header: header, Path: at.path})
	return nil
}

// isToken reports whether text can be a part of a header's name.
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

// maxToken is how long the name of a header may be.
const maxToken = 200

// argument returns the argument that m repeats. It is absent if it is null,
// which no header repeats.
func (m Mirror) argument(arguments jsonrpc.Value) jsonrpc.Value {
	for _, name := range m.Path {
		arguments = arguments.Member(name)
	}
	if arguments.IsNull() {
		return jsonrpc.Value{}
	}
	return arguments
}

// MirrorArguments sets the headers that repeat arguments, as the definition of
// the tool demands, and removes all others of that kind. The error is that of
// [Mirrors].
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

// HasMirrors reports whether any header claims to repeat an argument.
func HasMirrors(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, paramHeader) {
			return true
		}
	}
	return false
}

// CheckMirrors returns the problem of a request one of whose headers repeats an
// argument otherwise than it is. A header that is missing is the upstream's to
// miss; one that the definition does not name has no meaning.
func CheckMirrors(h http.Header, tool, arguments jsonrpc.Value) *Problem {
	demanded, _ := Mirrors(tool) // none if it cannot be followed: nobody knows what its headers mean
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

// repeats reports whether text, from a header, is the argument.
func repeats(text string, argument jsonrpc.Value) bool {
	if original, isText := argument.Text(); isText {
		return text == original
	}
	if text == string(argument.Bytes) {
		return true
	}
	one, err := strconv.ParseFloat(text, 64)
	other, err2 := strconv.ParseFloat(string(argument.Bytes), 64)
	const exact = 1 << 53 // beyond it, different integers are the same float
	return err == nil && err2 == nil && one == other && -exact < one && one < exact
}

func headerText(v jsonrpc.Value) string {
	if text, ok := v.Text(); ok {
		return EncodeHeader(text)
	}
	return string(v.Bytes)
}
