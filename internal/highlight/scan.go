package highlight

import (
	"strings"
)

// A grammar is as much of a language as colours need.
type grammar struct {
	comments []string // that end with the line
	block    [2]string
	quotes   string
	escapes  bool // a backslash in a string keeps the next character in it
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

// A scanner goes through a text once.
type scanner struct {
	text   string
	at     int
	l      Language
	g      grammar
	tokens []Token
	open   string // quotes of which one was found without an end: looking again would take too long
}

func (s *scanner) scan() []Token {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case s.comment():
		case strings.IndexByte(s.g.quotes, c) >= 0 && strings.IndexByte(s.open, c) < 0:
			s.quoted(c)
		case s.l == Shell && c == '$':
			s.variable()
		case isLetter(c):
			s.word()
		case isDigit(c):
			s.number()
		default:
			s.at++
		}
	}
	return s.tokens
}

// add makes a token of what is before end, and goes on there.
func (s *scanner) add(end int, c Class) {
	s.tokens = append(s.tokens, Token{s.at, end, c})
	s.at = end
}

// comment takes the comment that begins here, if one does.
func (s *scanner) comment() bool {
	rest := s.text[s.at:]
	if open := s.g.block[0]; open != "" && strings.HasPrefix(rest, open) {
		end := strings.Index(rest[len(open):], s.g.block[1])
		if end < 0 {
			s.add(len(s.text), Comment)
			return true
		}
		s.add(s.at+len(open)+end+len(s.g.block[1]), Comment)
		return true
	}
	for _, mark := range s.g.comments {
		// In a shell and in URLs, such a mark inside of a word is none.
		if strings.HasPrefix(rest, mark) && (s.l == SQL || s.at == 0 || isSpace(s.text[s.at-1])) {
			s.add(s.lineEnd(), Comment)
			return true
		}
	}
	return false
}

// lineEnd returns where the line ends that is being read.
func (s *scanner) lineEnd() int {
	if n := strings.IndexByte(s.text[s.at:], '\n'); n >= 0 {
		return s.at + n
	}
	return len(s.text)
}

// quoted takes a string. One that does not end is none: an apostrophe.
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
			s.at++
			return
		}
	}
	s.open += string(quote)
	s.at++
}

func (s *scanner) variable() {
	end := s.at + 1
	for end < len(s.text) && (isLetter(s.text[end]) || isDigit(s.text[end]) || s.text[end] == '{' || s.text[end] == '}') {
		end++
	}
	if end == s.at+1 {
		s.at++
		return
	}
	s.add(end, Name)
}

func (s *scanner) word() {
	end := s.at
	for end < len(s.text) && (isLetter(s.text[end]) || isDigit(s.text[end]) || s.l == Shell && s.text[end] == '-') {
		end++
	}
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

func (s *scanner) number() {
	end := s.at
	for end < len(s.text) && (isDigit(s.text[end]) || isLetter(s.text[end]) || s.text[end] == '.') {
		end++
	}
	s.add(end, Number)
}

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == ';' }
