package config

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A shape is the part of a Leaf's JSON Schema that its kinds do not say.
type shape struct {
	noun        string   // the type of the value in the documentation
	words       []string // the only values; empty means any
	pattern     string   // that texts match
	bounded     bool     // least and most are set
	least, most int64
	empty       bool // the empty text is valid too
}

// Patterns of texts. They match every value that [Load] accepts.
const (
	durationPattern = `^[+-]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	sizePattern     = `^[+-]?[0-9]+(KiB|MiB|GiB|kB|MB|B)?$`
)

func (l Leaf) called(noun string) Leaf {
	l.shape.noun = noun
	return l
}

func (l Leaf) among(words ...string) Leaf {
	l.shape.words = words
	return l
}

func (l Leaf) like(pattern string) Leaf {
	l.shape.pattern = pattern
	return l
}

func (l Leaf) between(least, most int64) Leaf {
	l.shape.bounded, l.shape.least, l.shape.most = true, least, most
	return l
}

// A Meaning documents a setting. Default is in YAML, and empty if there is none.
type Meaning struct{ Text, Default string }

// JSONSchema returns a JSON Schema (draft 7, which editors know best) of the
// configuration file. It accepts every file that [Load] accepts, and refuses
// unknown keys and most wrong values. The key of a meaning is the path of its
// setting, with [] for list items and * for keys that users choose.
func JSONSchema(kinds []ChannelKind, meanings map[string]Meaning) ([]byte, error) {
	c := Default()
	root := schemaWriter{meanings}.group("", c.settings(kinds))
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Configuration of ThoughtGate"
	root["dependencies"] = map[string]any{"rules": []string{"default"}}
	root["definitions"] = map[string]any{"variable": map[string]any{
		"type": "string", "pattern": `\$`,
		"description": "Text with environment variables: ${NAME} or ${NAME:-default}.",
	}}
	return json.Marshal(root, json.Deterministic(true), jsontext.WithIndent("  "), jsontext.EscapeForHTML(false))
}

// A schemaWriter turns settings into schemas.
type schemaWriter struct{ meanings map[string]Meaning }

type object = map[string]any

func (w schemaWriter) setting(path string, s Setting) object {
	switch s := s.(type) {
	case Leaf:
		return w.explain(path, s.schema())
	case Group:
		return w.group(path, s)
	case section:
		return w.group(path, s())
	case List:
		return w.several(path+"[]", s(), object{"type": "array"}, "items")
	case Dict:
		item, _ := s("x")
		return w.several(path+".*", item, object{"type": "object"}, "additionalProperties")
	case JSON:
		return w.explain(path, object{"type": []string{"object", "string"}})
	case required:
		return w.setting(path, s.Setting)
	}
	return nil
}

// several returns the schema of a list or a dict. The schema of its items is under
// key; the description of a single value is on the list.
func (w schemaWriter) several(path string, item Setting, schema object, key string) object {
	if single, ok := item.(Leaf); ok {
		schema[key] = single.schema()
		return w.explain(path, schema)
	}
	schema[key] = w.setting(path, item)
	return schema
}

func (w schemaWriter) group(path string, g Group) object {
	properties, needed := object{}, []string{}
	for _, e := range g {
		if _, must := e.To.(required); must {
			needed = append(needed, e.Key)
		}
		properties[e.Key] = w.setting(join(path, e.Key), e.To)
	}
	schema := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(needed) > 0 {
		schema["required"] = needed
	}
	if path == "upstreams[]" {
		schema["oneOf"] = []any{object{"required": []string{"url"}}, object{"required": []string{"command"}}}
	}
	return schema
}

// explain adds the description and the default of the setting at path.
func (w schemaWriter) explain(path string, schema object) object {
	meaning, known := w.meanings[path]
	if !known {
		return schema
	}
	schema["description"] = meaning.Text
	if text := jsontext.Value(meaning.Default); text.IsValid() {
		schema["default"] = text
	} else if meaning.Default != "" {
		schema["default"] = meaning.Default
	}
	return schema
}

// schema returns the schema of a single value. A text with a variable is always valid.
func (l Leaf) schema() object {
	options := l.options()
	if anyText := l.kinds == isText && l.shape.pattern == "" && l.shape.words == nil; anyText {
		return options[0]
	}
	return object{"anyOf": append(options, object{"$ref": "#/definitions/variable"})}
}

// options returns the schemas of the ways to write the value.
func (l Leaf) options() []object {
	if words := l.shape.words; len(words) > 0 {
		if l.shape.empty {
			words = append([]string{""}, words...)
		}
		return []object{{"enum": words}}
	}
	var all []object
	if l.kinds&isText != 0 {
		all = append(all, l.text())
	}
	switch {
	case l.kinds&isFloat != 0:
		all = append(all, l.number("number"))
	case l.kinds&isInteger != 0:
		all = append(all, l.number("integer"))
	case l.kinds&isBoolean != 0:
		all = append(all, object{"type": "boolean"})
	}
	return all
}

func (l Leaf) text() object {
	schema := object{"type": "string"}
	if l.shape.pattern != "" {
		schema["pattern"] = l.shape.pattern
		if l.shape.empty {
			schema["pattern"] = l.shape.pattern + "|^$"
		}
	}
	return schema
}

func (l Leaf) number(kind string) object {
	schema := object{"type": kind}
	if l.shape.bounded {
		schema["minimum"], schema["maximum"] = l.shape.least, l.shape.most
	}
	return schema
}
