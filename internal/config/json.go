package config

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// toJSON returns the value of a [JSON] setting, or nil if it reported a problem.
func (d *decoder) toJSON(path string, node ast.Node) jsontext.Value {
	if d.json > maxFile {
		return nil // reported already
	}
	var b bytes.Buffer
	if written, text := content(node); written == isText {
		b.WriteString(text)
	} else {
		jsonWriter{d, path, jsontext.NewEncoder(&b)}.write(path, node, 0)
	}
	text := jsontext.Value(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	switch d.json += len(text); {
	case d.to.faulty(path):
		return nil
	case d.json > maxFile:
		d.to.report(d.position(node), path, tooMuch)
	case !text.IsValid() || text.Kind() != '{':
		d.to.report(d.position(node), path, "must be a mapping, or a JSON object as text")
	default:
		return text
	}
	return nil
}

var tooMuch = fmt.Sprintf("is nested more than %d deep, or the JSON values of the file have more than %d bytes, aliases included", maxNesting, maxFile)

// A jsonWriter writes the value of one setting as JSON. It ends early after a problem with the
// setting, because aliases can repeat a value many times, also in itself.
type jsonWriter struct {
	from *decoder
	root string // path of the setting
	enc  *jsontext.Encoder
}

func (w jsonWriter) write(path string, node ast.Node, depth int) {
	d := w.from
	if d.values++; d.values > maxValues || d.to.faulty(w.root) {
		return
	}
	if depth > maxNesting || d.json+int(w.enc.OutputOffset()) > maxFile {
		d.to.report(d.position(node), w.root, tooMuch)
		return
	}
	if _, null := node.(*ast.NullNode); null {
		w.put(node, w.enc.WriteToken(jsontext.Null))
		return
	}
	switch n := d.resolve(w.root, node).(type) {
	case nil:
	case *ast.MappingNode, *ast.MappingValueNode:
		w.put(n, w.enc.WriteToken(jsontext.BeginObject))
		d.eachEntry(path, n, func(path, key string, e *ast.MappingValueNode) {
			w.put(e.Key, w.enc.WriteToken(jsontext.String(key)))
			w.write(path, e.Value, depth+1)
		})
		w.put(n, w.enc.WriteToken(jsontext.EndObject))
	case *ast.SequenceNode:
		w.put(n, w.enc.WriteToken(jsontext.BeginArray))
		for i, v := range n.Values {
			w.write(fmt.Sprintf("%s[%d]", path, i), v, depth+1)
		}
		w.put(n, w.enc.WriteToken(jsontext.EndArray))
	default:
		w.put(n, w.scalar(n))
	}
}

// scalar writes a text, a number as it is written, true or false.
func (w jsonWriter) scalar(node ast.Node) error {
	written, text := content(node)
	value := jsontext.Value(text)
	// The parser takes numbers that Go cannot represent, such as 1e400, for text.
	number := node.GetToken().Type == token.StringType && value.Kind() == '0' && value.IsValid()
	if written == isText && !number {
		return w.enc.WriteToken(jsontext.String(text))
	}
	return w.enc.WriteValue(value)
}

// put reports the error of writing node, unless it follows from another problem.
func (w jsonWriter) put(node ast.Node, err error) {
	if err != nil && !w.from.to.faulty(w.root) {
		w.from.to.report(w.from.position(node), w.root, "has a value that is not JSON, such as .inf or 0x1f")
	}
}
