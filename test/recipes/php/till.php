<?php
// php till.php: books online orders from the mirror, hands over the counts and acknowledges by the inbox, all in SQL.
// PHP 7.4 or newer with sqlite3; its ledger is till.db in TILL_DIRECTORY.
const OWN_SKU = 'SELECT CASE count(*) WHEN 1 THEN min(sku) END AS sku FROM stock WHERE external_id = ?';
const TAKES_NOTHING = ['pending', 'payment-pending', 'cancel', 'refund', 'payment-canceled'];

function open(string $file, int $flags): SQLite3 {
    $db = new SQLite3($file, $flags);
    $db->enableExceptions(true);
    $db->busyTimeout(5000);
    return $db;
}
function run(SQLite3 $db, string $sql, array $values = []): array {
    $statement = $db->prepare($sql);
    foreach (array_values($values) as $i => $value) $statement->bindValue($i + 1, $value);
    $result = $statement->execute();
    $rows = [];
    if ($result->numColumns() > 0) while ($row = $result->fetchArray(SQLITE3_ASSOC)) $rows[] = $row;
    $statement->close();
    return $rows;
}
function atOnce(SQLite3 $db, callable $work): void {
    $db->exec('BEGIN IMMEDIATE');
    try { $work(); $db->exec('COMMIT'); } catch (Exception $error) { $db->exec('ROLLBACK'); throw $error; }
}
function rowsOf(string $name): array {
    $lines = explode("\n", file_get_contents(getenv($name)));
    return array_map(fn($line) => explode("\t", $line), array_slice($lines, 0, -1));
}

$till = open(getenv('TILL_DIRECTORY') . '/till.db', SQLITE3_OPEN_READWRITE | SQLITE3_OPEN_CREATE);
$till->exec("PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, external_id TEXT, qty REAL, told REAL);
    CREATE TABLE IF NOT EXISTS taken (order_id TEXT, sku TEXT, qty REAL);
    CREATE TABLE IF NOT EXISTS tickets (order_id TEXT PRIMARY KEY, total TEXT, due TEXT, booked TEXT, prepared INTEGER DEFAULT 0);
    CREATE TABLE IF NOT EXISTS owed (order_id TEXT PRIMARY KEY, seq INTEGER);
    CREATE TABLE IF NOT EXISTS place (name TEXT PRIMARY KEY, value INTEGER);
    INSERT OR IGNORE INTO place VALUES ('seq', 0), ('sale', 0)");
function place(SQLite3 $till, string $name): int {
    return run($till, 'SELECT value FROM place WHERE name = ?', [$name])[0]['value'];
}

/** A page of events with their orders and items, of one moment; no lock is held while the till works.
    A feed that ends below the till's place was made anew, and is read from its beginning. */
function readPage(SQLite3 $till): array {
    $mirror = open(getenv('TILL_MIRROR'), SQLITE3_OPEN_READONLY);
    try {
        $mirror->exec('BEGIN');
        $events = run($mirror, "SELECT e.seq, e.order_id, o.status, o.store_external_id AS store,
              coalesce(CAST(o.amount_to_pay AS TEXT), '') AS total, CASE WHEN o.is_scheduled THEN o.scheduled_for END AS due
            FROM order_events e LEFT JOIN orders o USING (order_id) WHERE e.seq >
              (SELECT CASE WHEN seq < ? THEN 0 ELSE ? END FROM sqlite_sequence WHERE name = 'order_events')
            ORDER BY e.seq LIMIT 100", [place($till, 'seq'), place($till, 'seq')]);
        foreach ($events as &$event) $event['items'] = run($mirror, 'SELECT sku, product_external_id AS id, coalesce(quantity, 0) AS qty
            FROM order_items WHERE order_id = ?', [$event['order_id']]);
        return $events;
    } finally { $mirror->close(); }
}

/** What the order took is given back, what it takes now is taken, and the place noted, in one transaction. */
function book(SQLite3 $till, array $event): void {
    $id = $event['order_id'];
    foreach (run($till, 'SELECT sku, qty FROM taken WHERE order_id = ?', [$id]) as $row)
        run($till, 'UPDATE stock SET qty = qty + ? WHERE sku = ?', [$row['qty'], $row['sku']]);
    run($till, 'DELETE FROM taken WHERE order_id = ?', [$id]);
    if ($event['store'] === getenv('TILL_STORE') && !in_array($event['status'], TAKES_NOTHING, true)) {
        foreach ($event['items'] as $row) {
            $sku = $row['sku'] ?? run($till, OWN_SKU, [$row['id']])[0]['sku'];
            run($till, 'UPDATE stock SET qty = qty - ? WHERE sku = ?', [$row['qty'], $sku]);
            run($till, 'INSERT INTO taken VALUES (?, ?, ?)', [$id, $sku, $row['qty']]);
        }
        run($till, 'INSERT OR IGNORE INTO tickets (order_id) VALUES (?)', [$id]);
        run($till, 'UPDATE tickets SET total = ?, due = ? WHERE order_id = ?', [$event['total'], $event['due'], $id]);
        if (run($till, 'SELECT 1 FROM taken WHERE order_id = ? AND sku IS NULL', [$id]))
            fwrite(STDERR, "$id is not acknowledged, a person has to look: it has an article that is not known\n");
        else run($till, 'INSERT OR REPLACE INTO owed VALUES (?, ?)', [$id, $event['seq']]);
    } else run($till, 'DELETE FROM tickets WHERE order_id = ?', [$id]);
    run($till, "UPDATE place SET value = ? WHERE name = 'seq'", [$event['seq']]);
}

function sell(SQLite3 $till): void {
    foreach (rowsOf('TILL_SALES') as [$number, $sku, $qty]) if ($number > place($till, 'sale')) atOnce($till, function () use ($till, $number, $sku, $qty) {
        run($till, 'UPDATE stock SET qty = qty - ? WHERE sku = ?', [(float) $qty, $sku]);
        run($till, "UPDATE place SET value = ? WHERE name = 'sale'", [(int) $number]);
    });
}

/** Counts first, then acknowledgements, in one transaction on the inbox; the ledger strikes them off after it. */
function handOver(SQLite3 $till): void {
    $owed = run($till, 'SELECT order_id, seq FROM owed');
    $counts = run($till, 'SELECT max(qty, 0) AS qty, external_id FROM stock WHERE max(qty, 0) <> told');
    if (!$owed && !$counts) return;
    $inbox = open(getenv('TILL_INBOX'), SQLITE3_OPEN_READWRITE);
    try {
        $inbox->exec('PRAGMA synchronous = EXTRA');          // Survives a power cut. Before SQLite 3.12: FULL.
        atOnce($inbox, function () use ($inbox, $owed, $counts) {
            foreach ($counts as $count) try {
                run($inbox, 'INSERT INTO stock_changes (qty, external_id, subsidiary_external_id) VALUES (?, ?, ?)',
                    [$count['qty'], $count['external_id'], getenv('TILL_STORE')]);
            } catch (Exception $error) {                     // The others go on.
                if (strpos($error->getMessage(), 'constraint') === false) throw $error;
                fwrite(STDERR, "refused, a person has to look: {$count['external_id']}: {$error->getMessage()}\n");
            }
            foreach ($owed as $ack) run($inbox, 'INSERT INTO order_acks (order_id, seq) VALUES (?, ?)', $ack);
        });
    } finally { $inbox->close(); }
    atOnce($till, function () use ($till, $owed, $counts) {
        foreach ($counts as $count) run($till, 'UPDATE stock SET told = ? WHERE external_id = ?', $count);
        foreach ($owed as $ack) run($till, 'DELETE FROM owed WHERE order_id = ? AND seq = ?', $ack);
    });
}

/** The kitchen's printer: a ticket is booked at once, again when its total changes, and prepared when its time has come. */
function printTickets(SQLite3 $till): void {
    foreach (run($till, 'SELECT order_id, total FROM tickets WHERE booked IS NOT total') as $row) {
        file_put_contents(getenv('TILL_REPORT'), "booked\t{$row['order_id']}\t{$row['total']}\n", FILE_APPEND);
        run($till, 'UPDATE tickets SET booked = ? WHERE order_id = ?', [$row['total'], $row['order_id']]);
    }
    $lead = (int) getenv('TILL_LEAD');                       // Seconds before its time.
    $latest = (new DateTime("now +$lead seconds", new DateTimeZone('UTC')))->format('Y-m-d\TH:i:s.v\Z');
    foreach (run($till, 'SELECT order_id FROM tickets WHERE prepared = 0 AND (due IS NULL OR due <= ?)', [$latest]) as $row) {
        file_put_contents(getenv('TILL_REPORT'), "prepare\t{$row['order_id']}\n", FILE_APPEND);
        run($till, 'UPDATE tickets SET prepared = 1 WHERE order_id = ?', [$row['order_id']]);
    }
}

atOnce($till, function () use ($till) {
    foreach (array_slice(rowsOf('TILL_ARTICLES'), 1) as [$sku, $id, , $qty])
        run($till, 'INSERT OR IGNORE INTO stock VALUES (?, ?, ?, ?)', [$sku, $id, (float) $qty, (float) $qty]);
});
for (;;) {
    try {
        sell($till);
        $page = readPage($till);
        atOnce($till, function () use ($till, $page) { foreach ($page as $event) book($till, $event); });
        printTickets($till);
        handOver($till);
        if (!$page) sleep(1);
    } catch (Exception $error) {                             // Locked, or just made anew: what is owed stands in the ledger.
        fwrite(STDERR, $error->getMessage() . "\n");
        sleep(1);
    }
}
