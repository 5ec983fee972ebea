// Package gatetask has the parts of a task that only a gateway needs. A gateway holds a call
// until people have approved it, and then sends it to the server behind the gateway, the
// upstream. The parts are the policy's verdict, the decisions of approvers and their standing
// approvals, the presence of the owner, the state of the upstream, and a cancellation that must
// be sent to it.
//
// Package task imports this package: a task has these parts as fields. The rules are in
// package lifecycle.
package gatetask
