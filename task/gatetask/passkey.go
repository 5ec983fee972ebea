package gatetask

// A Signature is what an operator has signed with a passkey. It can be checked without the gate:
// it has the public key, and the challenge follows from the statement.
type Signature struct {
	Credential []byte `json:"credential"`              // the id of the passkey
	Key        []byte `json:"key"`                     // its public key, in COSE
	Site       string `json:"site"`                    // the relying party, such as localhost
	Client     []byte `json:"client,omitempty"`        // the client data, in JSON
	Auth       []byte `json:"authenticator,omitempty"` // the authenticator data
	Signature  []byte `json:"signature,omitempty"`

	Statement Statement `json:"statement,omitzero"`
}

// A Statement is what an approver signs.
type Statement struct {
	Task     string `json:"task"`
	Call     string `json:"call"`  // the digest of the call, in hexadecimal
	Shown    string `json:"shown"` // the digest of what the approver was shown
	Unread   int64  `json:"unread,omitzero"`
	Approver string `json:"approver"`

	// Scope is the digest of all calls that the approval may cover later: calls like this one,
	// apart from the arguments that Grant leaves free, with metadata of this one or none.
	Scope string      `json:"scope"`
	Grant *GrantTerms `json:"grant,omitzero"`
}
