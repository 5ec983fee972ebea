package localuser

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"time"
)

// The kernel's protocol for queries about a socket, sock_diag(7).
const (
	sockDiag         = 4  // NETLINK_SOCK_DIAG
	sockDiagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	noCookie         = ^uint64(0)

	headerSize   = 16 // struct nlmsghdr
	addressSize  = 16 // of an address in struct inet_diag_sockid
	socketIDSize = 48 // struct inet_diag_sockid
	questionSize = headerSize + 8 + socketIDSize
	socketIDAt   = headerSize + 4                  // in the answer
	userAt       = socketIDAt + socketIDSize + 3*4 // in the answer
	inodeAt      = userAt + 4                      // in the answer
	answerSize   = inodeAt + 4
)

// findSocket returns the socket at one address that is connected to the other.
func findSocket(at, to netip.AddrPort) (Socket, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, sockDiag)
	if err != nil {
		return Socket{}, err
	}
	defer func() { _ = syscall.Close(fd) }()
	limit := syscall.NsecToTimeval(int64(time.Second))
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit); err != nil {
		return Socket{}, err
	}
	question := socketQuestion(at, to)
	if err := syscall.Sendto(fd, question, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return Socket{}, err
	}
	answer := make([]byte, 512) // small, because it is on the stack of a long-lived goroutine
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return Socket{}, err
	}
	return readSocket(question, answer[:n])
}

// socketQuestion returns the query for the socket at one address that is connected to the other.
func socketQuestion(at, to netip.AddrPort) []byte {
	order := binary.NativeEndian
	family := byte(syscall.AF_INET)
	if !at.Addr().Unmap().Is4() {
		family = syscall.AF_INET6
	}
	q := make([]byte, 0, questionSize)
	q = order.AppendUint32(q, questionSize)
	q = order.AppendUint16(q, sockDiagByFamily)
	q = order.AppendUint16(q, syscall.NLM_F_REQUEST)
	q = order.AppendUint64(q, 0) // sequence number and port id
	q = append(q, family, syscall.IPPROTO_TCP, 0, 0)
	q = order.AppendUint32(q, ^uint32(0)) // in any state
	q = binary.BigEndian.AppendUint16(q, at.Port())
	q = binary.BigEndian.AppendUint16(q, to.Port())
	q = appendSocketAddress(q, at.Addr())
	q = appendSocketAddress(q, to.Addr())
	q = order.AppendUint32(q, 0) // on any interface
	return order.AppendUint64(q, noCookie)
}

func appendSocketAddress(q []byte, addr netip.Addr) []byte {
	var field [addressSize]byte
	copy(field[:], addr.Unmap().AsSlice())
	return append(q, field[:]...)
}

// readSocket returns the socket in the answer to a query. The kernel may also answer with a
// listening socket at the same address. A closed socket has no inode, and the kernel reports root as
// its user.
func readSocket(question, answer []byte) (Socket, error) {
	order := binary.NativeEndian
	if len(answer) < headerSize+4 {
		return Socket{}, ErrNoSocket
	}
	if kind := order.Uint16(answer[4:]); kind != sockDiagByFamily {
		return Socket{}, fmt.Errorf("%w: message of type %d, code %d", ErrNoSocket, kind, int32(order.Uint32(answer[headerSize:]))) // signed
	}
	const ends = 2 + 2 + 2*addressSize // the ports and addresses in an inet_diag_sockid
	if len(answer) < answerSize || string(answer[socketIDAt:][:ends]) != string(question[headerSize+8:][:ends]) {
		return Socket{}, ErrNoSocket
	}
	//mutate:false TestOfClosedConnection a connection that its program has closed belongs to root
	if order.Uint32(answer[inodeAt:]) == 0 {
		return Socket{}, ErrClosed
	}
	return Socket{UID: int(order.Uint32(answer[userAt:])), Inode: order.Uint32(answer[inodeAt:])}, nil
}
