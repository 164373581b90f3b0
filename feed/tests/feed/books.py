"""Order books of a recording, to compare with those of `wirepath feed report --books`.

Written from the exchanges' public specifications and without a line of Wirepath: Nasdaq's MoldUDP64 and TotalView-ITCH 5.0,
and the manual O-104 of the Taiwan Stock Exchange (formats 06, 17 and 23). Levels of ITCH are added up from the list of orders
at the end.

books.py RECORDING DEPTH prints a JSON document.
"""

import json
import struct
import sys


def datagrams(data):
    """UDP payloads of a pcapng file, of raw IPv4 or Ethernet."""
    order, links, at = "<", [], 0
    while at + 12 <= len(data):
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            order, links = ("<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"), []
        kind, length = struct.unpack_from(order + "II", data, at)
        if kind == 1:
            links.append(struct.unpack_from(order + "H", data, at + 8)[0])
        elif kind == 6:
            interface, _, _, captured = struct.unpack_from(order + "IIII", data, at + 8)
            frame = data[at + 28 : at + 28 + captured]
            if links[interface] == 1:
                frame = frame[14:] if frame[12:14] == b"\x08\x00" else b""
            if frame and frame[0] >> 4 == 4 and frame[9] == 17:
                udp = frame[(frame[0] & 15) * 4 :]
                yield udp[8 : struct.unpack_from(">H", udp, 4)[0]]
        at += length


class Itch:
    def __init__(self):
        self.messages = {}
        self.orders = {}
        self.books = {}
        self.unknown = self.contradictory = 0

    def packet(self, payload):
        session, sequence, count = struct.unpack_from(">10sQH", payload)
        at = 20
        for n in range(0 if count == 0xFFFF else count):
            (length,) = struct.unpack_from(">H", payload, at)
            stream = self.messages.setdefault(session, {})
            stream.setdefault(sequence + n, payload[at + 2 : at + 2 + length])
            at += 2 + length

    def build(self):
        for session, stream in self.messages.items():
            self.session = session.decode("ascii").rstrip()
            for _, message in sorted(stream.items()):
                self.message(message)

    def message(self, m):
        kind, locate = m[:1], struct.unpack_from(">H", m, 1)[0]
        if kind in b"AF":
            reference, side, shares, stock, price = struct.unpack_from(">QcI8sI", m, 11)
            self.book(locate, stock)["messages"] += 1
            self.add(reference, [locate, side, price, shares])
        elif kind in b"EC":
            reference, shares, _ = struct.unpack_from(">QIQ", m, 11)
            order = self.take(reference, shares)
            if order:
                printable, price = struct.unpack_from(">cI", m, 31) if kind == b"C" else (b"Y", order[2])
                if printable == b"Y":
                    self.trade(order[0], price, shares)
        elif kind == b"X":
            self.take(*struct.unpack_from(">QI", m, 11))
        elif kind == b"D":
            self.take(struct.unpack_from(">Q", m, 11)[0], None)
        elif kind == b"U":
            original, new, shares, price = struct.unpack_from(">QQII", m, 11)
            order = self.take(original, None)
            if order:
                self.add(new, [order[0], order[1], price, shares])
        elif kind == b"P":
            _, _, shares, stock, price, _ = struct.unpack_from(">QcI8sIQ", m, 11)
            self.book(locate, stock)["messages"] += 1
            self.trade(locate, price, shares)
        elif kind == b"Q":
            shares, stock, price = struct.unpack_from(">Q8sI", m, 11)
            self.book(locate, stock)["messages"] += 1
            self.trade(locate, price, shares)

    def book(self, locate, stock=b""):
        new = {"symbol": stock.decode("ascii").rstrip(), "messages": 0, "trades": 0, "last": None, "volume": 0}
        return self.books.setdefault((self.session, locate), new)

    def add(self, reference, order):
        if (self.session, reference) in self.orders or order[3] == 0:
            self.contradictory += 1
        else:
            self.orders[self.session, reference] = order

    def take(self, reference, shares):
        """The order before it, or None if it is not known."""
        order = self.orders.get((self.session, reference))
        if order is None:
            self.unknown += 1
            return None
        before = list(order)
        shares = order[3] if shares is None else shares
        self.contradictory += shares == 0 or shares > order[3]
        order[3] -= min(shares, order[3])
        if order[3] == 0:
            del self.orders[self.session, reference]
        self.book(order[0])["messages"] += 1
        return before

    def trade(self, locate, price, shares):
        if shares:
            book = self.book(locate)
            book["trades"] += 1
            book["last"] = [price, shares]
            book["volume"] += shares

    def states(self):
        sides = {}
        for (session, _), (locate, side, price, shares) in self.orders.items():
            level = sides.setdefault((session, locate, side), {}).setdefault(price, [price, 0, 0])
            level[1] += shares
            level[2] += 1
        for (session, locate), book in self.books.items():
            bids = sorted(sides.get((session, locate, b"B"), {}).values(), reverse=True)
            asks = sorted(sides.get((session, locate, b"S"), {}).values())
            yield f"{session} {book['symbol']} {locate}", book, bids, asks


def digits(packed):
    return int(packed.hex())


class Twse:
    def __init__(self):
        self.telegrams = {}

    def packet(self, payload):
        at = 0
        while payload[at : at + 1] == b"\x1b":
            length = digits(payload[at + 1 : at + 3])
            t = payload[at : at + length]
            if t[4] in (0x06, 0x17, 0x23):
                self.telegrams.setdefault((t[3], t[4], digits(t[6:10])), t)
            at += length

    def states(self):
        books = {}
        for (business, form, _), t in sorted(self.telegrams.items()):
            wide = 6 if form == 0x23 else 4
            levels = []
            for at in range(25 + wide, len(t) - 3, 5 + wide):
                levels.append([digits(t[at : at + 5]), digits(t[at + 5 : at + 5 + wide]), 0])
            if t[16:22] == b"\x99" * 6:
                continue
            trade, bids, asks = t[22] >> 7, t[22] >> 4 & 7, t[22] >> 1 & 7
            name = f"{['', 'TWSE', 'TPEx'][business]} {t[10:16].decode().rstrip()} {'odd' if form == 0x23 else 'round'}"
            new = {"messages": 0, "trades": 0, "last": None, "bids": [], "asks": []}
            book = books.setdefault(name, new)
            book["symbol"] = t[10:16].decode().rstrip()
            book["messages"] += 1
            book["volume"] = digits(t[25 : 25 + wide])
            if trade and levels[0][1] and not t[24] & 0x80:
                book["trades"] += 1
                book["last"] = levels[0][:2]
            # Of an odd lot the bit is reserved.
            if not t[22] & 1 or form == 0x23:
                book["bids"] = levels[trade : trade + bids]
                book["asks"] = levels[trade + bids : trade + bids + asks]
        for name, book in books.items():
            yield name, book, book["bids"], book["asks"]


def fnv(data, digest=0xCBF29CE484222325):
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return digest


def priced(price):
    whole, rest = divmod(price, 10_000)
    text = f"{rest:04}"
    return f"{whole}.{text[:2]}{text[2:].rstrip('0')}"


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    depth = int(sys.argv[2])
    itch, twse = Itch(), Twse()
    for payload in datagrams(data):
        (twse if payload[:1] == b"\x1b" else itch).packet(payload)
    itch.build()
    books, whole = {}, 0xCBF29CE484222325
    for name, book, bids, asks in sorted([*itch.states(), *twse.states()], key=lambda state: state[0].encode()):
        numbers = []
        for side in (bids, asks):
            numbers += [len(side), *(number for level in side for number in level)]
        digest = fnv(b"".join(struct.pack("<Q", number) for number in numbers))
        whole = fnv(name.encode() + struct.pack("<Q", digest), whole)
        books[name] = {
            "digest": f"{digest:016x}",
            "levels": [len(bids), len(asks)],
            "bids": [[priced(price), *rest] for price, *rest in bids[:depth]],
            "asks": [[priced(price), *rest] for price, *rest in asks[:depth]],
            "messages": book["messages"],
            "trades": book["trades"],
            "last": book["last"] and [priced(book["last"][0]), book["last"][1]],
            "volume": book["volume"],
        }
    counts = {"live": len(itch.orders), "unknown": itch.unknown, "contradictory": itch.contradictory}
    json.dump({"digest": f"{whole:016x}", **counts, "books": books}, sys.stdout)


main()
