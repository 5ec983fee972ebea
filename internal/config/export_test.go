package config

// Parse is like [Load] for the text of a file called name. It reads no other file, and uses
// environ only for variables inside the file.
func Parse(name string, src []byte, environ []string, kinds ...ChannelKind) (Config, []Problem, error) {
	l := newLoader(Sources{Environ: environ, Channels: kinds})
	l.decode(&decoder{file: name}, src, l.cfg.settings(l.kinds))
	l.addDefaultWorkflow()
	l.check()
	return l.result()
}

// A Key is one setting in the tree.
type Key struct {
	Path     string // with [] for the members of a list and * for the keys of a mapping
	Type     string
	Required bool
}

// Keys returns every setting in the tree.
func Keys(kinds ...ChannelKind) []Key {
	var keys []Key
	var walk func(path, kind string, s Setting)
	needed := false
	walk = func(path, kind string, s Setting) {
		switch s := s.(type) {
		case Leaf:
			keys = append(keys, Key{path, kind + s.noun(), needed})
			needed = false
		case Group:
			for _, e := range s {
				walk(join(path, e.Key), "", e.To)
			}
		case section:
			walk(path, kind, s())
		case List:
			walk(path+"[]", "list of ", s())
		case Dict:
			item, _ := s("x")
			walk(path+".*", "map of ", item)
		case JSON:
		case required:
			needed = true
			walk(path, kind, s.Setting)
		}
	}
	walk("", "", new(Config).settings(kinds))
	return keys
}

// noun returns a readable type of the value.
func (l Leaf) noun() string {
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

// The limits of a file.
const (
	MaxFile    = maxFile
	MaxTokens  = maxTokens
	MaxNesting = maxNesting
)
