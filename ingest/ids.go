package ingest

import "github.com/cbcast/cbcast/internal/event"

// maxID bounds an id that is published as an attribute, in bytes. Real ones have
// 36; one that a child makes up must not push its frame out of a message.
const maxID = 1024

// identify makes the ids of an event fit to be attributes. They come from the
// frame as the child wrote it, and an attribute is published like data is: an id
// that holds a secret is masked in the same way. masked says that this frame had
// something to mask.
func (r *recorder) identify(e *event.Event, masked bool) {
	for _, id := range []*string{&e.Session, &e.Task, &e.Parent} {
		if *id == "" || !masked && len(*id) <= maxID && len(r.hidden) == 0 {
			continue
		}
		*id = r.published(*id, masked)
	}
}

// published is the form in which an id leaves this machine.
func (r *recorder) published(id string, masked bool) string {
	if p, ok := r.hidden[id]; ok {
		return p
	}
	p := id
	if masked {
		p = string(r.red.Frame("", []byte(id), false).Data)
	}
	if len(p) > maxID {
		p = p[:maxID-40] + "#" + r.red.Hash([]byte(id))
	}
	if p != id && len(r.hidden) < maxHidden {
		if r.hidden == nil {
			r.hidden = map[string]string{}
		}
		r.hidden[id] = p
	}
	return p
}

// maxHidden bounds the ids that are remembered as masked. Past it one is masked
// on the frames that show it to hold a secret, and on no other.
const maxHidden = 256
