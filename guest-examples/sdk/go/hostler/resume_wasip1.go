package hostler

import "unsafe"

// Instances of a Go component begin from a snapshot of the memory after its start, in which Go has drawn the
// seed of its random numbers already. hostler calls this function in each instance: it draws another seed, for
// math/rand, the iteration of maps, and the hashes of new maps. (crypto/rand needs no seed.)
//
//go:wasmexport hostler_resume
func resume() {
	state := &globalRand.state
	if !globalRand.init || state.i > state.n || state.n > uint32(len(state.buf)) {
		panic("this release of Go keeps its random numbers elsewhere: remove resume.go, which makes starts slower")
	}
	var seed [32]byte
	if errno := randomGet(&seed, uint32(len(seed))); errno != 0 {
		panic("no random numbers")
	}
	seedState(state, seed)
	m := acquirem()
	mrandinit(m)
	releasem(m)
}

//go:wasmimport wasi_snapshot_preview1 random_get
func randomGet(buffer *[32]byte, length uint32) uint32

// From runtime/rand.go and internal/chacha8rand/chacha8.go, the same in Go 1.25 and 1.26.

//go:linkname globalRand runtime.globalRand
var globalRand struct {
	lock  uintptr
	seed  [32]byte
	state randState
	init  bool
}

type randState struct {
	buf     [32]uint64
	seed    [4]uint64
	i, n, c uint32
}

//go:linkname seedState internal/chacha8rand.(*State).Init
func seedState(state *randState, seed [32]byte)

//go:linkname mrandinit runtime.mrandinit
func mrandinit(m unsafe.Pointer)

//go:linkname acquirem runtime.acquirem
func acquirem() unsafe.Pointer

//go:linkname releasem runtime.releasem
func releasem(m unsafe.Pointer)
