package action

// A Name names an action on a task or a store.
type Name string

// The actions: those of events, and those of stores.
const (
	Submit       Name = "submit"
	Admit        Name = "admit"
	Approve      Name = "approve"
	Reject       Name = "reject"
	Claim        Name = "claim"
	Complete     Name = "complete"
	Fail         Name = "fail"
	Lapse        Name = "lapse"
	Cancel       Name = "cancel"
	Expire       Name = "expire"
	Contact      Name = "contact"
	SetVariables Name = "set variables"
	ExtendTTL    Name = "extend ttl"
	RenewLease   Name = "renew lease"
	Progress     Name = "progress"
	Ask          Name = "ask"
	Answer       Name = "answer"
	Resume       Name = "resume"
	Restart      Name = "restart"
	Describe     Name = "describe"
	Deliver      Name = "deliver"

	CancelUpstream Name = "tell upstream"
	SettleUpstream Name = "settle upstream"

	Create     Name = "create"
	Get        Name = "get"
	Swap       Name = "swap"
	List       Name = "list"
	Sweep      Name = "sweep"
	Watch      Name = "watch"
	ReadChunk  Name = "read chunk"
	WriteChunk Name = "write chunk"
	Append     Name = "append to the journal"
	Read       Name = "read the journal"
	Trim       Name = "trim the journal"

	PutRecord    Name = "put record"
	GetRecord    Name = "get record"
	DeleteRecord Name = "delete record"
	ListRecords  Name = "list records"
	SweepRecords Name = "sweep records"
	SizeRecords  Name = "size records"
)
