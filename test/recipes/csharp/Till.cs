// Till.exe: books online orders from the mirror, hands over the counts and acknowledges by the inbox, all in SQL.
// mcs -r:System.Data -r:Mono.Data.Sqlite Till.cs        On .NET: System.Data.SQLite with SQLiteConnection
// Its ledger is till.db in TILL_DIRECTORY.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Threading;
using Mono.Data.Sqlite;

static class Till {
    static readonly string[] TakesNothing = { "pending", "payment-pending", "cancel", "refund", "payment-canceled" };
    const string OwnSku = "SELECT CASE count(*) WHEN 1 THEN min(sku) END FROM stock WHERE external_id = ?";
    static readonly string Store = Env("TILL_STORE"), Report = Env("TILL_REPORT");
    static SqliteConnection till;

    static string Env(string name) { return Environment.GetEnvironmentVariable(name); }

    // Without "Journal Mode=Default" the library tries to change the mirror at each opening, and fails.
    static SqliteConnection Open(string file, string more) {
        var db = new SqliteConnection("Data Source=" + file + ";Journal Mode=Default;Default Timeout=5" + more);
        db.Open();
        return db;
    }

    static List<object[]> Run(SqliteConnection db, string sql, params object[] values) {
        using (var command = new SqliteCommand(sql, db)) {
            foreach (var value in values) command.Parameters.Add(new SqliteParameter { Value = value ?? DBNull.Value });
            var rows = new List<object[]>();
            using (var reader = command.ExecuteReader())
                while (reader.Read()) {
                    var row = new object[reader.FieldCount];
                    reader.GetValues(row);
                    rows.Add(row.Select(each => each is DBNull ? null : each).ToArray());
                }
            return rows;
        }
    }

    static void AtOnce(SqliteConnection db, Action work) {
        Run(db, "BEGIN IMMEDIATE");
        try { work(); Run(db, "COMMIT"); } catch { Run(db, "ROLLBACK"); throw; }
    }

    static IEnumerable<string[]> RowsOf(string name) {
        var lines = File.ReadAllText(Env(name)).Split('\n');
        return lines.Take(lines.Length - 1).Select(line => line.Split('\t'));
    }

    static double Number(object text) { return Convert.ToDouble(text, CultureInfo.InvariantCulture); }

    static long Place(string name) {
        return Convert.ToInt64(Run(till, "SELECT value FROM place WHERE name = ?", name)[0][0]);
    }

    class Event { public object[] Row; public List<object[]> Items; }

    // A page of events with their orders and items, of one moment; no lock is held while the till works.
    // A feed that ends below the till's place was made anew, and is read from its beginning.
    static List<Event> ReadPage() {
        using (var mirror = Open(Env("TILL_MIRROR"), ";Read Only=True")) {
            Run(mirror, "BEGIN");
            var rows = Run(mirror, @"SELECT e.seq, e.order_id, o.status, o.store_external_id,
                  coalesce(CAST(o.amount_to_pay AS TEXT), ''), CASE WHEN o.is_scheduled THEN CAST(o.scheduled_for AS TEXT) END
                FROM order_events e LEFT JOIN orders o USING (order_id) WHERE e.seq >
                  (SELECT CASE WHEN seq < ? THEN 0 ELSE ? END FROM sqlite_sequence WHERE name = 'order_events')
                ORDER BY e.seq LIMIT 100", Place("seq"), Place("seq"));
            var page = rows.Select(row => new Event { Row = row, Items = Run(mirror,
                @"SELECT sku, product_external_id, coalesce(quantity, 0) FROM order_items
                WHERE order_id = ?", row[1]) }).ToList();
            Run(mirror, "ROLLBACK");
            return page;
        }
    }

    // What the order took is given back, what it takes now is taken, and the place noted, in one transaction.
    static void Book(Event one) {
        object seq = one.Row[0], id = one.Row[1];
        foreach (var row in Run(till, "SELECT sku, qty FROM taken WHERE order_id = ?", id))
            Run(till, "UPDATE stock SET qty = qty + ? WHERE sku = ?", row[1], row[0]);
        Run(till, "DELETE FROM taken WHERE order_id = ?", id);
        if ((string) one.Row[3] == Store && !TakesNothing.Contains((string) one.Row[2])) {
            foreach (var row in one.Items) {
                object sku = row[0] ?? Run(till, OwnSku, row[1])[0][0];
                Run(till, "UPDATE stock SET qty = qty - ? WHERE sku = ?", row[2], sku);
                Run(till, "INSERT INTO taken VALUES (?, ?, ?)", id, sku, row[2]);
            }
            Run(till, "INSERT OR IGNORE INTO tickets (order_id) VALUES (?)", id);
            Run(till, "UPDATE tickets SET total = ?, due = ? WHERE order_id = ?", one.Row[4], one.Row[5], id);
            if (Run(till, "SELECT 1 FROM taken WHERE order_id = ? AND sku IS NULL", id).Count > 0)
                Console.Error.WriteLine(id + " is not acknowledged, a person has to look: it has an article that is not known");
            else Run(till, "INSERT OR REPLACE INTO owed VALUES (?, ?)", id, seq);
        } else Run(till, "DELETE FROM tickets WHERE order_id = ?", id);
        Run(till, "UPDATE place SET value = ? WHERE name = 'seq'", seq);
    }

    static void Sell() {
        foreach (var sale in RowsOf("TILL_SALES").Where(row => long.Parse(row[0]) > Place("sale")).ToList())
            AtOnce(till, () => {
                Run(till, "UPDATE stock SET qty = qty - ? WHERE sku = ?", Number(sale[2]), sale[1]);
                Run(till, "UPDATE place SET value = ? WHERE name = 'sale'", long.Parse(sale[0]));
            });
    }

    // Counts first, then acknowledgements, in one transaction on the inbox; the ledger strikes them off after it.
    static void HandOver() {
        var owed = Run(till, "SELECT order_id, seq FROM owed");
        var counts = Run(till, "SELECT max(qty, 0), external_id FROM stock WHERE max(qty, 0) <> told");
        if (owed.Count + counts.Count == 0) return;
        using (var inbox = Open(Env("TILL_INBOX"), ";FailIfMissing=True")) {
            Run(inbox, "PRAGMA synchronous = EXTRA");        // Survives a power cut. Before SQLite 3.12: FULL.
            AtOnce(inbox, () => {
                foreach (var count in counts)
                    try {
                        Run(inbox, "INSERT INTO stock_changes (qty, external_id, subsidiary_external_id) VALUES (?, ?, ?)",
                            count[0], count[1], Store);
                    } catch (SqliteException error) {        // The others go on.
                        if (error.ErrorCode != SQLiteErrorCode.Constraint) throw;
                        Console.Error.WriteLine("refused, a person has to look: " + count[1] + ": " + error.Message);
                    }
                foreach (var ack in owed) Run(inbox, "INSERT INTO order_acks (order_id, seq) VALUES (?, ?)", ack);
            });
        }
        AtOnce(till, () => {
            foreach (var count in counts) Run(till, "UPDATE stock SET told = ? WHERE external_id = ?", count);
            foreach (var ack in owed) Run(till, "DELETE FROM owed WHERE order_id = ? AND seq = ?", ack);
        });
    }

    // The kitchen's printer: a ticket is booked at once, again when its total changes, and prepared when its time has come.
    static void PrintTickets() {
        foreach (var row in Run(till, "SELECT order_id, total FROM tickets WHERE booked IS NOT total")) {
            File.AppendAllText(Report, "booked\t" + row[0] + "\t" + row[1] + "\n");
            Run(till, "UPDATE tickets SET booked = ? WHERE order_id = ?", row[1], row[0]);
        }
        double lead = Number(Env("TILL_LEAD") ?? "0");       // Seconds before its time.
        string latest = DateTime.UtcNow.AddSeconds(lead).ToString("yyyy-MM-ddTHH:mm:ss.fff", CultureInfo.InvariantCulture) + "Z";
        foreach (var row in Run(till, "SELECT order_id FROM tickets WHERE prepared = 0 AND (due IS NULL OR due <= ?)", latest)) {
            File.AppendAllText(Report, "prepare\t" + row[0] + "\n");
            Run(till, "UPDATE tickets SET prepared = 1 WHERE order_id = ?", row[0]);
        }
    }

    static void Main() {
        till = Open(Path.Combine(Env("TILL_DIRECTORY"), "till.db"), "");
        foreach (var sql in new[] { "PRAGMA synchronous = FULL",
            "CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, external_id TEXT, qty REAL, told REAL)",
            "CREATE TABLE IF NOT EXISTS taken (order_id TEXT, sku TEXT, qty REAL)",
            "CREATE TABLE IF NOT EXISTS tickets (order_id TEXT PRIMARY KEY, total TEXT, due TEXT, booked TEXT, prepared INTEGER DEFAULT 0)",
            "CREATE TABLE IF NOT EXISTS owed (order_id TEXT PRIMARY KEY, seq INTEGER)",
            "CREATE TABLE IF NOT EXISTS place (name TEXT PRIMARY KEY, value INTEGER)",
            "INSERT OR IGNORE INTO place VALUES ('seq', 0), ('sale', 0)" }) Run(till, sql);
        AtOnce(till, () => {
            foreach (var row in RowsOf("TILL_ARTICLES").Skip(1))
                Run(till, "INSERT OR IGNORE INTO stock VALUES (?, ?, ?, ?)", row[0], row[1], Number(row[3]), Number(row[3]));
        });
        for (;;)
            try {
                Sell();
                var page = ReadPage();
                AtOnce(till, () => page.ForEach(Book));
                PrintTickets();
                HandOver();
                if (page.Count == 0) Thread.Sleep(1000);
            } catch (SqliteException error) {                // Locked, or just made anew: what is owed stands in the ledger.
                Console.Error.WriteLine(error.Message);
                Thread.Sleep(1000);
            }
    }
}
