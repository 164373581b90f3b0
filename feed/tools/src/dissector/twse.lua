-- Wireshark dissector for telegrams of the Taiwan exchanges (TWSE, TPEx), printed by
-- `wirepath feed dissector`. Formats 01 (versions 08, 09), 06 and 17 (04), 23 (01); the body of any other
-- is shown in hexadecimal. Use: tshark -X lua_script:twse.lua -d udp.port==10000,twse

local twse = Proto("twse", "Taiwan exchange telegrams")
local ESCAPE, HEADER, TRAILER = 0x1b, 10, 3

local fields = {}
local function field(kind, name, title)
    fields[name] = ProtoField[kind]("twse." .. name, title)
end

for _, name in ipairs { "length", "business", "format", "version", "sequence" } do
    field("uint32", name, name)
end
field("uint8", "checksum", "checksum")
field("bool", "checksum.right", "checksum right")
for _, name in ipairs {
    "market", "symbol", "match_time", "lot", "trade.price", "bid.price", "ask.price", "limit.trade",
    "limit.bid", "limit.ask", "limit.halt", "name", "industry", "category", "marker", "class", "board",
    "reference", "limit_up", "limit_down", "currency", "warrant.strike", "warrant.upper_barrier",
    "warrant.lower_barrier",
} do
    field("string", name, name)
end
for _, name in ipairs {
    "cumulative_volume", "trade.quantity", "bid.quantity", "ask.quantity", "warrant.exercised",
    "warrant.cancelled", "warrant.outstanding",
} do
    field("uint64", name, name)
end
for _, name in ipairs {
    "anomaly", "match_cycle_s", "trading_unit", "line", "instruments", "warrant.ratio_hundredths",
    "warrant.expiry",
} do
    field("uint32", name, name)
end
for _, name in ipairs {
    "end_of_feed", "trade_only", "status.trial", "status.open_delayed", "status.close_delayed",
    "status.continuous", "status.open", "status.close",
} do
    field("bool", name, name)
end
field("bytes", "body", "body")
do
    local all = {}
    for _, each in pairs(fields) do all[#all + 1] = each end
    twse.fields = all
end

-- Packed digits as a number; nil if one is no digit.
local function packed(range)
    local number = 0
    for at = 0, range:len() - 1 do
        local byte = range(at, 1):uint()
        local high, low = math.floor(byte / 16), byte % 16
        if high > 9 or low > 9 then return nil end
        number = number * 100 + high * 10 + low
    end
    return number
end

local function u64(number)
    return UInt64.new(number % 4294967296, math.floor(number / 4294967296))
end

-- Exact, with at least two decimals of four.
local function price(range)
    local number = packed(range)
    if not number then return "invalid" end
    local text = string.format("%d.%04d", math.floor(number / 10000), number % 10000)
    return (text:gsub("0?0$", ""))
end

local function bits(byte, shift, count)
    return math.floor(byte / 2 ^ shift) % 2 ^ count
end

local function digits(tree, name, range)
    tree:add(fields[name], range, packed(range) or 0)
end

local function wide(tree, name, range)
    tree:add(fields[name], range, u64(packed(range) or 0))
end

local function characters(tree, name, range)
    local text = range:string():gsub(" +$", "")
    tree:add(fields[name], range, text)
    return text
end

local LIMITS = { [0] = "none", "down", "up", "reserved" }

local function level(tree, side, range, quantity_bytes)
    tree:add(fields[side .. ".price"], range(0, 5), price(range(0, 5)))
    wide(tree, side .. ".quantity", range(5, quantity_bytes))
end

-- Formats 06, 17 (quantities of 4 bytes) and 23 (6 bytes); false if the body does not fit.
local function book(tree, telegram, quantity_bytes)
    local items = telegram(22, 1):uint()
    local sides = { { "trade", bits(items, 7, 1) }, { "bid", bits(items, 4, 3) }, { "ask", bits(items, 1, 3) } }
    local count = sides[1][2] + sides[2][2] + sides[3][2]
    local level_bytes = 5 + quantity_bytes
    if telegram:len() ~= 25 + quantity_bytes + count * level_bytes + TRAILER then return false end
    tree:add(fields.lot, telegram(4, 1), quantity_bytes == 6 and "odd" or "round")
    local symbol = characters(tree, "symbol", telegram(10, 6))
    local time = telegram(16, 6):bytes():tohex()
    if time == "999999999999" then
        tree:add(fields.end_of_feed, telegram(16, 6), true)
    else
        local text = time:gsub("(..)(..)(..)(......)", "%1:%2:%3.%4")
        tree:add(fields.match_time, telegram(16, 6), text)
    end
    tree:add(fields.trade_only, telegram(22, 1), items % 2 == 1)
    local limits = telegram(23, 1):uint()
    for shift, name in pairs { [6] = "trade", [4] = "bid", [2] = "ask", [0] = "halt" } do
        tree:add(fields["limit." .. name], telegram(23, 1), LIMITS[bits(limits, shift, 2)])
    end
    local status = telegram(24, 1):uint()
    local names = { [7] = "trial", [6] = "open_delayed", [5] = "close_delayed", [4] = "continuous",
        [3] = "open", [2] = "close" }
    for shift, name in pairs(names) do
        tree:add(fields["status." .. name], telegram(24, 1), bits(status, shift, 1) == 1)
    end
    wide(tree, "cumulative_volume", telegram(25, quantity_bytes))
    local at = 25 + quantity_bytes
    for _, side in ipairs(sides) do
        for _ = 1, side[2] do
            level(tree, side[1], telegram(at, level_bytes), quantity_bytes)
            at = at + level_bytes
        end
    end
    return true, symbol
end

local function warrant(tree, body)
    tree:add(fields["warrant.strike"], body(0, 5), price(body(0, 5)))
    wide(tree, "warrant.exercised", body(5, 5))
    wide(tree, "warrant.cancelled", body(10, 5))
    wide(tree, "warrant.outstanding", body(15, 5))
    digits(tree, "warrant.ratio_hundredths", body(20, 4))
    tree:add(fields["warrant.upper_barrier"], body(24, 5), price(body(24, 5)))
    tree:add(fields["warrant.lower_barrier"], body(29, 5), price(body(29, 5)))
    digits(tree, "warrant.expiry", body(34, 4))
end

-- Format 01: fields that one exchange or version lacks move the later ones.
local function instrument(tree, telegram, is_tpex, version)
    local class, board = is_tpex and 1 or 0, version >= 9 and 1 or 0
    local foreign = 1 - class
    if telegram:len() ~= 39 + class + board + 63 + foreign + 7 + TRAILER then return false end
    local marker = characters(tree, "marker", telegram(36, 2))
    local symbol = telegram(10, 6):string():gsub(" +$", "")
    if marker == "AL" or marker == "NE" then
        tree:add(fields.instruments, telegram(10, 6), tonumber(symbol) or 0)
        return true
    end
    tree:add(fields.symbol, telegram(10, 6), symbol)
    tree:add_packet_field(fields.name, telegram(16, 16), ENC_BIG5 or ENC_ASCII)
    characters(tree, "industry", telegram(32, 2))
    characters(tree, "category", telegram(34, 2))
    digits(tree, "anomaly", telegram(38, 1))
    if class == 1 then tree:add(fields.class, telegram(39, 1), telegram(39, 1):string()) end
    if board == 1 then tree:add(fields.board, telegram(39 + class, 1), telegram(39 + class, 1):string()) end
    local at = 39 + class + board
    for step, name in ipairs { "reference", "limit_up", "limit_down" } do
        local range = telegram(at + (step - 1) * 5, 5)
        tree:add(fields[name], range, price(range))
    end
    digits(tree, "match_cycle_s", telegram(at + 21, 3))
    if telegram(at + 24, 1):string() == "Y" then warrant(tree, telegram(at + 25, 38)) end
    local tail = at + 63 + foreign
    digits(tree, "trading_unit", telegram(tail, 3))
    characters(tree, "currency", telegram(tail + 3, 3))
    digits(tree, "line", telegram(tail + 6, 1))
    return true, symbol
end

local function body_of(tree, telegram, business, format, version)
    local known = business == 1 or business == 2
    if known and (format == 6 or format == 17) and version == 4 then
        return book(tree, telegram, 4)
    elseif known and format == 23 and version == 1 then
        return book(tree, telegram, 6)
    elseif known and format == 1 and (version == 8 or version == 9) then
        return instrument(tree, telegram, business == 2, version)
    end
    return false
end

local MARKETS = { "TWSE", "TPEx" }

local function dissect(telegram, root)
    local tree = root:add(twse, telegram())
    local business, format = packed(telegram(3, 1)) or 0, packed(telegram(4, 1)) or 0
    local version = packed(telegram(5, 1)) or 0
    digits(tree, "length", telegram(1, 2))
    digits(tree, "business", telegram(3, 1))
    if MARKETS[business] then tree:add(fields.market, telegram(3, 1), MARKETS[business]) end
    digits(tree, "format", telegram(4, 1))
    digits(tree, "version", telegram(5, 1))
    digits(tree, "sequence", telegram(6, 4))
    local done, symbol = body_of(tree, telegram, business, format, version)
    local size = telegram:len()
    if not done and size > HEADER + TRAILER then
        tree:add(fields.body, telegram(HEADER, size - HEADER - TRAILER))
    end
    local sum = 0
    for at = 1, size - TRAILER - 1 do
        local byte, result, place = telegram(at, 1):uint(), 0, 1
        for _ = 1, 8 do
            if byte % 2 ~= sum % 2 then result = result + place end
            byte, sum, place = math.floor(byte / 2), math.floor(sum / 2), place * 2
        end
        sum = result
    end
    local found = telegram(size - TRAILER, 1)
    tree:add(fields.checksum, found)
    tree:add(fields["checksum.right"], found, found:uint() == sum)
    tree:append_text(string.format(", format %02d, sequence %d %s", format, packed(telegram(6, 4)) or 0, symbol or ""))
end

function twse.dissector(buffer, info, root)
    info.cols.protocol = "TWSE"
    local at = 0
    while at + HEADER + TRAILER <= buffer:len() and buffer(at, 1):uint() == ESCAPE do
        local size = packed(buffer(at + 1, 2)) or 0
        if size < HEADER + TRAILER or at + size > buffer:len() then break end
        dissect(buffer(at, size), root)
        at = at + size
    end
    return at
end

-- Ports of the exchanges' multicast lines: stocks, warrants, snapshots, odd lots, of both lines.
for _, port in ipairs { 10000, 20000, 10002, 20002, 10004, 20004, 10008, 20008, 3000, 13000 } do
    DissectorTable.get("udp.port"):add(port, twse)
end
