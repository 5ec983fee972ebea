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

// Keys returns the path of every setting in the tree, with [] for the members
// of a list and * for the keys of a dict, but without those of later builds.
func Keys() []string {
	var keys []string
	var walk func(path string, s setting)
	walk = func(path string, s setting) {
		switch s := s.(type) {
		case leaf:
			keys = append(keys, path)
		case group:
			for _, e := range s {
				walk(join(path, e.key), e.to)
			}
		case list:
			walk(path+"[]", s.item())
		case dict:
			item, _ := s.item("x")
			walk(path+".*", item)
		case either:
			walk(path, s.short)
			walk(path, s.long)
		case later:
		}
	}
	walk("", new(Config).settings())
	return keys
}

// The bounds on a file.
const (
	MaxFile    = maxFile
	MaxTokens  = maxTokens
	MaxNesting = maxNesting
)
