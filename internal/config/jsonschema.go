package config

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A shape is what a schema can say of a leaf besides how YAML writes it.
type shape struct {
	noun        string   // the type of the value, for people
	words       []string // the only values; none means any
	pattern     string   // that texts match
	bounded     bool     // whether numbers have the bounds least and most
	least, most int64
	empty       bool // the empty text is allowed as well
}

// Patterns of texts. They let through everything that the loader takes.
const (
	durationPattern = `^[+-]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	sizePattern     = `^[+-]?[0-9]+(KiB|MiB|GiB|kB|MB|B)?$`
)

func (l leaf) called(noun string) leaf {
	l.shape.noun = noun
	return l
}

func (l leaf) among(words ...string) leaf {
	l.shape.words = words
	return l
}

func (l leaf) like(pattern string) leaf {
	l.shape.pattern = pattern
	return l
}

func (l leaf) between(least, most int64) leaf {
	l.shape.bounded, l.shape.least, l.shape.most = true, least, most
	return l
}

// A Meaning says what a setting is for. Its default is as a file would write it,
// or empty if there is none.
type Meaning struct{ Text, Default string }

// JSONSchema returns a JSON Schema (draft 7, which editors know best) of the
// configuration file. It accepts every file that [Load] accepts, and refuses
// unknown keys and most wrong values; what depends on several settings, only
// Load checks. The key of a meaning is the path of its setting, with [] for the
// members of a list and * for the keys of a user.
func JSONSchema(meanings map[string]Meaning) ([]byte, error) {
	c := Default()
	root := schemaWriter{meanings}.group("", c.settings())
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

func (w schemaWriter) setting(path string, s setting) object {
	switch s := s.(type) {
	case leaf:
		return w.explain(path, s.schema())
	case group:
		return w.group(path, s)
	case list:
		return w.several(path+"[]", s.item(), object{"type": "array"}, "items")
	case dict:
		item, _ := s.item("x")
		return w.several(path+".*", item, object{"type": "object"}, "additionalProperties")
	case either:
		options := []any{s.short.schema(), w.group(path, s.long)}
		return w.explain(path, object{"anyOf": options})
	case required:
		return w.setting(path, s.setting)
	}
	return nil
}

// several returns the schema of a list or a dict, which has that of its items
// under key. It says once, for all items, what is known of single values.
func (w schemaWriter) several(path string, item setting, schema object, key string) object {
	if single, ok := item.(leaf); ok {
		schema[key] = single.schema()
		return w.explain(path, schema)
	}
	schema[key] = w.setting(path, item)
	return schema
}

func (w schemaWriter) group(path string, g group) object {
	properties, needed := object{}, []string{}
	for _, e := range g {
		if _, must := e.to.(required); must {
			needed = append(needed, e.key)
		}
		properties[e.key] = w.setting(join(path, e.key), e.to)
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

// explain adds to schema what is known of the setting at path.
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

// schema returns the schema of a single value. A text with a variable may stand
// for it, whatever it is.
func (l leaf) schema() object {
	options := l.options()
	if anyText := l.kinds == isText && l.shape.pattern == "" && l.shape.words == nil; anyText {
		return options[0]
	}
	return object{"anyOf": append(options, object{"$ref": "#/definitions/variable"})}
}

// options returns the schemas of the ways to write the value.
func (l leaf) options() []object {
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

func (l leaf) text() object {
	schema := object{"type": "string"}
	if l.shape.pattern != "" {
		schema["pattern"] = l.shape.pattern
		if l.shape.empty {
			schema["pattern"] = l.shape.pattern + "|^$"
		}
	}
	return schema
}

func (l leaf) number(kind string) object {
	schema := object{"type": kind}
	if l.shape.bounded {
		schema["minimum"], schema["maximum"] = l.shape.least, l.shape.most
	}
	return schema
}
