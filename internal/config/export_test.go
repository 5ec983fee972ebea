package config

// Parse is [Load] for the text of a file called name. It reads no other file
// and obeys no variable or flag that overrides one; environ is what variables
// inside the file refer to.
func Parse(name string, src []byte, environ []string) (Config, []Problem, error) {
	l := newLoader(environ)
	l.decode(name, src)
	l.addDefaultWorkflow()
	l.check()
	return l.result()
}

// A Key is one setting in the tree.
type Key struct {
	Path     string // with [] for the members of a list and * for the keys of a dict
	Type     string
	Required bool
}

// Keys returns every setting in the tree.
func Keys() []Key {
	var keys []Key
	var walk func(path, kind string, s setting)
	needed := false
	walk = func(path, kind string, s setting) {
		switch s := s.(type) {
		case leaf:
			keys = append(keys, Key{path, kind + s.noun(), needed})
			needed = false
		case group:
			for _, e := range s {
				walk(join(path, e.key), "", e.to)
			}
		case list:
			walk(path+"[]", "list of ", s.item())
		case dict:
			item, _ := s.item("x")
			walk(path+".*", "map of ", item)
		case either:
			walk(path, "", s.short)
			walk(path, "", s.long)
		case required:
			needed = true
			walk(path, kind, s.setting)
		}
	}
	walk("", "", new(Config).settings())
	return keys
}

// noun returns the type of the value, for people.
func (l leaf) noun() string {
	switch {
	case l.shape.noun != "":
		return l.shape.noun
	case len(l.shape.words) > 0:
		return "word"
	case l.kinds == isBoolean:
		return "boolean"
	case l.kinds&(isInteger|isFloat) != 0:
		return "number"
	default:
		return "text"
	}
}

// The bounds on a file.
const (
	MaxFile    = maxFile
	MaxTokens  = maxTokens
	MaxNesting = maxNesting
)
