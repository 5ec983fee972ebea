package highlight

import (
	"strings"
)

// A grammar has the lexical rules of a language that colours need.
type grammar struct {
	comments []string // the marks of comments that end with the line
	block    [2]string
	quotes   string
	escapes  bool // a backslash in a string escapes the next character
	keywords string
	anyCase  bool
}

var grammars = map[Language]grammar{
	JSON: {quotes: `"`, escapes: true, keywords: " true false null "},
	Shell: {
		comments: []string{"#"}, quotes: "\"'`", escapes: true,
		keywords: " if then elif else fi for in do done while until case esac function select return exit export local readonly set unset source eval exec trap sudo ",
	},
	SQL: {
		comments: []string{"--"}, block: [2]string{"/*", "*/"}, quotes: `'"`, anyCase: true,
		keywords: " select from where and or not insert into values update set delete create drop alter table index view database schema truncate" +
			" grant revoke to on join left right inner outer full cross group by order having limit offset union all distinct as is null in exists" +
			" between like case when then else end begin commit rollback transaction primary key foreign references unique default cascade if with" +
			" returning using merge trigger function role user ",
	},
	Code: {
		comments: []string{"//", "#"}, block: [2]string{"/*", "*/"}, quotes: "\"'`", escapes: true,
		keywords: " if else elif for while do switch case default break continue return func function fn def class struct interface type enum impl" +
			" trait import from package module use include const let var val static public private protected new delete try except catch finally" +
			" raise throw throws async await yield lambda with as in is not and or true false null nil none None True False self this super go" +
			" defer range chan map select void int string bool float match pub mut export extends implements ",
	},
}

// A scanner reads a text once from start to end.
type scanner struct {
	text     string
	at       int
	l        Language
	g        grammar
	tokens   []Token
	unclosed map[byte]int // by quote, the offset before which no closing quote was found, to avoid searching again
}

func (s *scanner) scan() []Token {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case s.comment():
		case strings.IndexByte(s.g.quotes, c) >= 0 && s.at >= s.unclosed[c]:
			s.quoted(c)
		case s.l == Shell && c == '$':
			s.variable()
		case isLetter(c):
			s.word()
		case isDigit(c):
			s.add(s.end(s.at, "."), Number)
		default:
			s.at++
		}
	}
	return s.tokens
}

// add adds a token that ends before end, and continues there.
func (s *scanner) add(end int, c Class) {
	s.tokens = append(s.tokens, Token{s.at, end, c})
	s.at = end
}

// comment adds the comment that begins here, and reports whether there is one.
func (s *scanner) comment() bool {
	rest := s.text[s.at:]
	if open := s.g.block[0]; open != "" && strings.HasPrefix(rest, open) {
		inside, _, ended := strings.Cut(rest[len(open):], s.g.block[1])
		end := s.at + len(open) + len(inside)
		if ended {
			end += len(s.g.block[1])
		}
		s.add(end, Comment)
		return true
	}
	for _, mark := range s.g.comments {
		// Inside of a word, as in a URL, the mark does not begin a comment.
		if strings.HasPrefix(rest, mark) && (s.l == SQL || s.at == 0 || isSpace(s.text[s.at-1])) {
			line, _, _ := strings.Cut(rest, "\n")
			s.add(s.at+len(line), Comment)
			return true
		}
	}
	return false
}

// quoted adds a string. A quote without an end is not a string but an apostrophe.
func (s *scanner) quoted(quote byte) {
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '\\' && s.g.escapes && (s.l != Shell || quote != '\''):
			i++
		case c == quote:
			class := String
			if s.l == JSON && strings.HasPrefix(strings.TrimLeft(s.text[i+1:min(len(s.text), i+9)], " \t\n"), ":") {
				class = Name
			}
			s.add(i+1, class)
			return
		case c == '\n' && s.l == Code && quote != '`':
			s.unended(quote, i)
			return
		}
	}
	s.unended(quote, len(s.text))
}

// unended skips a quote that has no end before the given offset.
func (s *scanner) unended(quote byte, before int) {
	if s.unclosed == nil {
		s.unclosed = make(map[byte]int)
	}
	s.unclosed[quote] = before
	s.at++
}

func (s *scanner) variable() {
	if end := s.end(s.at+1, "{}"); end > s.at+1 {
		s.add(end, Name)
		return
	}
	s.at++
}

func (s *scanner) word() {
	also := ""
	if s.l == Shell {
		also = "-"
	}
	end := s.end(s.at, also)
	word := s.text[s.at:end]
	if s.g.anyCase {
		word = strings.ToLower(word)
	}
	if strings.Contains(s.g.keywords, " "+word+" ") {
		s.add(end, Keyword)
		return
	}
	s.at = end
}

// end returns the end of the letters, digits and given characters that begin at an offset.
func (s *scanner) end(at int, also string) int {
	for at < len(s.text) && (isLetter(s.text[at]) || isDigit(s.text[at]) || strings.IndexByte(also, s.text[at]) >= 0) {
		at++
	}
	return at
}

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == ';' }
