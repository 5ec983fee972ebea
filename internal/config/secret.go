package config

import (
	"fmt"
	"io"
)

const hidden = "[secret]"

// A Secret is a text that does not print: not with any verb of fmt, nor in
// JSON, YAML or a log. The zero Secret is the empty text.
type Secret struct {
	// A closure, because whatever prints by reflection sees through strings
	// and pointers, even past methods that hide them.
	reveal func() string
}

// NewSecret hides text.
func NewSecret(text string) Secret {
	return Secret{func() string { return text }}
}

// Reveal returns the text. Nothing else does.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// Format implements [fmt.Formatter] for every verb.
func (Secret) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, hidden)
}

// MarshalText implements [encoding.TextMarshaler], which the encoders of JSON
// and YAML and the handlers of slog ask.
func (Secret) MarshalText() ([]byte, error) {
	return []byte(hidden), nil
}
