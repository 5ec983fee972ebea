package clientconfig

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"
)

// jsonLanguage is JSON with comments and trailing commas.
type jsonLanguage struct{}

func (jsonLanguage) parse(content []byte) (*node, error) {
	v, err := hujson.Parse(content)
	if err != nil {
		return nil, errors.New("not JSON: " + strings.TrimPrefix(err.Error(), "hujson: "))
	}
	return jsonNode(content, v)
}

func (jsonLanguage) quote(text string) string {
	quoted, _ := jsontext.AppendQuote(nil, text) // no error: parse requires valid UTF-8
	return string(quoted)
}

func (l jsonLanguage) name(key string) string { return l.quote(key) + ": " }

func jsonNode(content []byte, v hujson.Value) (*node, error) {
	n := &node{kind: other, start: v.StartOffset, end: v.EndOffset, value: string(content[v.StartOffset:v.EndOffset])}
	switch value := v.Value.(type) {
	case *hujson.Object:
		return n, n.addMembers(content, value)
	case *hujson.Array:
		n.kind = array
		for _, e := range value.Elements {
			item, err := jsonNode(content, e)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case hujson.Literal:
		if value.Kind() != '"' {
			return n, nil
		}
		plain, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return nil, err
		}
		n.kind, n.value = text, string(plain)
	}
	return n, nil
}

func (n *node) addMembers(content []byte, o *hujson.Object) error {
	n.kind = object
	for _, m := range o.Members {
		name, err := jsontext.AppendUnquote(nil, m.Name.Value.(hujson.Literal))
		if err != nil {
			return err
		}
		value, err := jsonNode(content, m.Value)
		if err != nil {
			return err
		}
		n.members = append(n.members, member{
			name: string(name), key: m.Name.StartOffset, gap: "," + lastGap(m.Name.BeforeExtra), value: value,
		})
	}
	return nil
}
