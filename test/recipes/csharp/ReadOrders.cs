// ReadOrders.exe MIRROR_DB SEQ_FILE: every new event with its order and items. Run it every few seconds.
// mcs -r:System.Data -r:Mono.Data.Sqlite ReadOrders.cs        On .NET: System.Data.SQLite with SQLiteConnection
using System;
using System.Collections.Generic;
using System.IO;
using Mono.Data.Sqlite;

static class ReadOrders {
    // Without "Journal Mode=Default" the library tries to change the mirror at each opening, and fails.
    const string READ_ONLY = ";Read Only=True;Journal Mode=Default;Default Timeout=5";

    static int Main(string[] args) {
        string seqFile = args[1];
        long after = File.Exists(seqFile) ? long.Parse(File.ReadAllText(seqFile)) : 0;
        var orders = new List<KeyValuePair<long, string>>();

        using (var db = new SqliteConnection("Data Source=" + args[0] + READ_ONLY)) {
            db.Open();
            using (db.BeginTransaction(System.Data.IsolationLevel.ReadCommitted))   // Order and items of one moment.
            using (var events = new SqliteCommand(
                @"SELECT e.seq, o.order_id, o.code, o.status FROM order_events e JOIN orders o USING (order_id)
                   WHERE e.seq > @after ORDER BY e.seq LIMIT 100", db))
            using (var items = new SqliteCommand(
                @"SELECT product_external_id, product_name, quantity FROM order_items
                   WHERE order_id = @id ORDER BY line", db)) {
                events.Parameters.AddWithValue("@after", after);
                items.Parameters.AddWithValue("@id", "");
                using (var row = events.ExecuteReader())
                    while (row.Read()) {
                        string order = "#" + row["code"] + " " + row["order_id"] + " " + row["status"];
                        items.Parameters["@id"].Value = row["order_id"];
                        using (var line = items.ExecuteReader())
                            while (line.Read())
                                order += "\n  " + line["quantity"] + " x " + line["product_name"]
                                    + " (" + line["product_external_id"] + ")";
                        orders.Add(new KeyValuePair<long, string>(row.GetInt64(0), order));
                    }
            }
        }                                                // No lock is held while the POS works.

        foreach (var order in orders) {
            Console.WriteLine(order.Value);              // Book it here; it may come twice after a crash.
            File.WriteAllText(seqFile + ".new", order.Key.ToString());
            if (File.Exists(seqFile)) File.Replace(seqFile + ".new", seqFile, null);
            else File.Move(seqFile + ".new", seqFile);
        }
        return 0;
    }
}
